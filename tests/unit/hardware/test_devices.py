"""What a machine has, by what its tools print and its kernel lists."""

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vmafx import logs
from vmafx.hardware import devices
from vmafx.hardware.devices import Device, HostHardware

NVIDIA = "NVIDIA L4, 550.54.15, 23034\nNVIDIA L4, 550.54.15, 23034\n"
ROCM = """{
 "card0": {"VRAM Total Memory (B)": "68702699520", "Card Series": "AMD INSTINCT MI250X", "Card Model": "0x7408"},
 "card1": {"Card series": "AMD INSTINCT MI250X"}, "system": {"Driver version": "6.3.6"}}"""
CPUINFO = (
    "processor\t: 0\nmodel name\t: AMD EPYC 7R13 Processor\n\nprocessor\t: 1\nmodel name\t: AMD EPYC 7R13 Processor\n"
)


NOBODY = 65534


class Bench:
    """A folder as a machine: tools in its PATH, files below its root."""

    def __init__(self, folder: Path) -> None:
        self.root, self._bin = folder / "root", folder / "bin"
        self._bin.mkdir()
        self.put("proc/cpuinfo", CPUINFO)

    def tool(self, name: str, says: str, code: int = 0, first: str = "") -> None:
        script = self._bin / name
        text = self._bin / f"{name}.txt"
        text.write_text(says)
        script.write_text(f"#!/bin/sh\n{first}\ncat {text}\nexit {code}\n")
        script.chmod(0o755)

    def put(self, path: str, content: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def machine(self) -> HostHardware:
        return HostHardware({"PATH": str(self._bin)}, self.root)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    out = io.StringIO()
    monkeypatch.setattr(logs, "_sink", logs._Sink())
    logs._sink.out = out
    return out


async def test_nvidia(bench: Bench) -> None:
    bench.tool("nvidia-smi", NVIDIA)
    bench.tool("rocm-smi", ROCM)
    found = await bench.machine().device()
    assert found == Device("nvidia", 2, "2 x NVIDIA L4, 23034 MiB, driver 550.54.15")
    assert found.backends == ("cuda", "cpu")


async def test_what_nvidia_smi_does_not_know_is_left_out(bench: Bench) -> None:
    bench.tool("nvidia-smi", "Orin (nvgpu), 540.3.0, [N/A]\n")
    assert await bench.machine().device() == Device("nvidia", 1, "Orin (nvgpu), driver 540.3.0")


async def test_amd(bench: Bench) -> None:
    bench.tool("rocm-smi", ROCM)
    found = await bench.machine().device()
    assert found == Device("amd", 2, "2 x AMD INSTINCT MI250X, 65520 MiB, driver 6.3.6")
    assert found.backends == ("hip", "cpu")


@pytest.mark.parametrize(
    ("says", "code"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9),
        ("No devices were found", 6),
        ("No devices were found", 0),
        ("", 0),
        ("\x00\x01\n" * 1000, 0),
    ],
)
async def test_a_broken_nvidia_smi_is_noted_and_the_next_kind_is_looked_for(
    bench: Bench, said: io.StringIO, says: str, code: int
) -> None:
    bench.tool("nvidia-smi", says, code)
    bench.tool("rocm-smi", ROCM)
    assert (await bench.machine().device()).vendor == "amd"
    assert ("nvidia-smi" in said.getvalue()) is bool(says)
    assert len(said.getvalue()) < 600


async def test_one_that_hangs_is_ended(
    bench: Bench, said: io.StringIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench.tool("nvidia-smi", NVIDIA, first=f"echo $$ >> {(pid := tmp_path / 'pid')}; sleep 600")
    pid.touch()
    for within in (0.5, 5.0, 50.0):  # on a busy machine it may have ended before it began
        monkeypatch.setattr(devices, "COMMAND_TIMEOUT", within)
        assert (await bench.machine().device()).vendor == "cpu"
        if pid.read_text():
            break
    assert "no answer within" in said.getvalue()
    (number,) = pid.read_text().split()
    assert not Path(f"/proc/{number}").exists()


@pytest.mark.parametrize("says", ["ERROR: GPU not found", "[]", '{"card0": 1}', "{}"])
async def test_a_broken_rocm_smi(bench: Bench, says: str) -> None:
    bench.tool("rocm-smi", says)
    assert (await bench.machine().device()).vendor == "cpu"


async def test_cards_that_only_the_kernel_knows(bench: Bench, said: io.StringIO) -> None:
    bench.put("sys/class/drm/card0/device/vendor", "0x1a03\n")  # a server's console
    assert (await bench.machine().device()).vendor == "cpu"
    bench.put("sys/class/drm/card1/device/vendor", "0x8086\n")
    bench.put("sys/class/drm/card1-DP-1/device/vendor", "0x8086\n")  # a socket of it
    assert (await bench.machine().device()).vendor == "cpu"
    assert "its driver offers no computing" in said.getvalue()
    bench.put("dev/dri/renderD128", "")
    found = await bench.machine().device()
    assert found == Device("intel", 1, "Intel GPU")
    assert found.backends == ("sycl", "cpu")
    bench.put("sys/class/drm/card2/device/vendor", "0x1002\n")
    bench.put("sys/class/drm/card3/device/vendor", "0x1002\n")
    bench.put("dev/kfd", "")
    assert (await bench.machine().device("hip")) == Device("amd", 2, "2 x AMD GPU")


@contextmanager
def somebody() -> Iterator[None]:
    """Not root, who may use everything; root comes back afterwards."""
    if os.getuid():
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


async def test_a_card_that_this_user_may_not_use(said: io.StringIO) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # pytest's own folders are for their owner alone
        bench = Bench(Path(folder))
        bench.put("sys/class/drm/card0/device/vendor", "0x8086\n")
        bench.put("dev/dri/renderD128", "")
        (bench.root / "dev/dri/renderD128").chmod(0)
        with somebody():
            found = await bench.machine().device()
    assert found.vendor == "cpu"
    assert "group render" in said.getvalue()


async def test_a_cpu(bench: Bench) -> None:
    cores = len(os.sched_getaffinity(0))
    found = await bench.machine().device()
    assert found == Device("cpu", 1, f"AMD EPYC 7R13 Processor, {cores} core{'s' if cores > 1 else ''}")
    assert found.backends == ("cpu",)


async def test_what_is_told_counts_more_than_what_is_found(bench: Bench, said: io.StringIO) -> None:
    bench.tool("nvidia-smi", NVIDIA)
    bench.tool("rocm-smi", ROCM)
    assert (await bench.machine().device("cpu")).vendor == "cpu"
    assert (await bench.machine().device("hip")).count == 2
    assert said.getvalue() == ""
    assert await bench.machine().device("sycl") == Device("intel", 1, "intel, as told; not found")
    assert "no device for this backend" in said.getvalue()
