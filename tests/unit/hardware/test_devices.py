"""Device detection, from the output of the vendors' tools and the files of the kernel."""

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vmafx import logs
from vmafx.cores import usable_cores
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


class FakeMachine:
    """A folder as a machine: tools in its PATH, files below its root."""

    def __init__(self, folder: Path) -> None:
        self.root, self._bin = folder / "root", folder / "bin"
        self._bin.mkdir()
        self.add_file("proc/cpuinfo", CPUINFO)

    def add_tool(self, name: str, output: str, code: int = 0, first: str = "") -> None:
        script = self._bin / name
        text = self._bin / f"{name}.txt"
        text.write_text(output)
        script.write_text(f"#!/bin/sh\n{first}\ncat {text}\nexit {code}\n")
        script.chmod(0o755)

    def add_file(self, path: str, content: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    def hardware(self) -> HostHardware:
        return HostHardware({"PATH": str(self._bin)}, self.root)


@pytest.fixture
def machine(tmp_path: Path) -> FakeMachine:
    return FakeMachine(tmp_path)


@pytest.fixture
def log_output(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    out = io.StringIO()
    monkeypatch.setattr(logs, "_sink", logs._Sink())
    logs._sink.out = out
    return out


async def test_nvidia_gpus_are_detected_with_nvidia_smi(machine: FakeMachine) -> None:
    machine.add_tool("nvidia-smi", NVIDIA)
    machine.add_tool("rocm-smi", ROCM)
    found = await machine.hardware().device()
    assert found == Device("nvidia", 2, "2 x NVIDIA L4, 23034 MiB, driver 550.54.15")
    assert found.backends == ("cuda", "cpu")


async def test_all_devices_are_listed_by_their_backend(machine: FakeMachine) -> None:
    machine.add_tool("nvidia-smi", NVIDIA)
    machine.add_tool("rocm-smi", ROCM)
    machine.add_file("sys/class/drm/card0/device/vendor", "0x1002\n")  # rocm-smi knows more about it
    machine.add_file("dev/kfd", "")
    found = await machine.hardware().devices()
    assert {backend: (device.vendor, device.count) for backend, device in found.items()} == {
        "cpu": ("cpu", 1),
        "cuda": ("nvidia", 2),
        "hip": ("amd", 2),
    }
    assert found["cpu"].text.startswith("AMD EPYC 7R13 Processor, ")


async def test_only_a_machine_that_registers_as_cpu_binds_its_workers_to_the_cpu(machine: FakeMachine) -> None:
    machine.add_tool("nvidia-smi", NVIDIA)
    hardware = machine.hardware()
    assert (await hardware.device("cpu")).worker_backend == "cpu"
    assert (await hardware.device()).worker_backend == (await hardware.device("hip")).worker_backend == "auto"


async def test_an_unknown_memory_size_is_left_out(machine: FakeMachine) -> None:
    machine.add_tool("nvidia-smi", "Orin (nvgpu), 540.3.0, [N/A]\n")
    assert await machine.hardware().device() == Device("nvidia", 1, "Orin (nvgpu), driver 540.3.0")


async def test_amd_gpus_are_detected_with_rocm_smi(machine: FakeMachine) -> None:
    machine.add_tool("rocm-smi", ROCM)
    found = await machine.hardware().device()
    assert found == Device("amd", 2, "2 x AMD INSTINCT MI250X, 65520 MiB, driver 6.3.6")
    assert found.backends == ("hip", "cpu")


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9),
        ("No devices were found", 6),
        ("No devices were found", 0),
        ("", 0),
        ("\x00\x01\n" * 1000, 0),
    ],
)
async def test_a_broken_nvidia_smi_is_logged_and_the_next_vendor_is_tried(
    machine: FakeMachine, log_output: io.StringIO, output: str, code: int
) -> None:
    machine.add_tool("nvidia-smi", output, code)
    machine.add_tool("rocm-smi", ROCM)
    assert (await machine.hardware().device()).vendor == "amd"
    assert ("nvidia-smi" in log_output.getvalue()) is bool(output)
    assert len(log_output.getvalue()) < 600


async def test_a_tool_that_hangs_is_killed(
    machine: FakeMachine, log_output: io.StringIO, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine.add_tool("nvidia-smi", NVIDIA, first=f"echo $$ >> {(pid := tmp_path / 'pid')}; sleep 600")
    pid.touch()
    for within in (0.5, 5.0, 50.0):  # on a busy machine it may be killed before its first line
        monkeypatch.setattr(devices, "COMMAND_TIMEOUT", within)
        assert (await machine.hardware().device()).vendor == "cpu"
        if pid.read_text():
            break
    assert "no answer within" in log_output.getvalue()
    (number,) = pid.read_text().split()
    assert not Path(f"/proc/{number}").exists()


@pytest.mark.parametrize("output", ["ERROR: GPU not found", "[]", '{"card0": 1}', "{}"])
async def test_a_broken_rocm_smi_leaves_the_cpu(machine: FakeMachine, output: str) -> None:
    machine.add_tool("rocm-smi", output)
    assert (await machine.hardware().device()).vendor == "cpu"


async def test_gpus_are_detected_without_tools_by_their_kernel_driver(
    machine: FakeMachine, log_output: io.StringIO
) -> None:
    machine.add_file("sys/class/drm/card0/device/vendor", "0x1a03\n")  # the display of a server's BMC
    assert (await machine.hardware().device()).vendor == "cpu"
    machine.add_file("sys/class/drm/card1/device/vendor", "0x8086\n")
    machine.add_file("sys/class/drm/card1-DP-1/device/vendor", "0x8086\n")  # a connector of that card
    assert (await machine.hardware().device()).vendor == "cpu"
    assert "its driver offers no compute device" in log_output.getvalue()
    machine.add_file("dev/dri/renderD128", "")
    found = await machine.hardware().device()
    assert found == Device("intel", 1, "Intel GPU")
    assert found.backends == ("sycl", "cpu")
    machine.add_file("sys/class/drm/card2/device/vendor", "0x1002\n")
    machine.add_file("sys/class/drm/card3/device/vendor", "0x1002\n")
    machine.add_file("dev/kfd", "")
    assert (await machine.hardware().device("hip")) == Device("amd", 2, "2 x AMD GPU")


@contextmanager
def unprivileged() -> Iterator[None]:
    """Drops root, which may open every file, for the length of the block."""
    if os.getuid():
        yield
        return
    os.setresuid(NOBODY, NOBODY, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


async def test_a_gpu_that_this_user_may_not_open_is_not_used(log_output: io.StringIO) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # pytest's folders are readable by their owner only
        machine = FakeMachine(Path(folder))
        machine.add_file("sys/class/drm/card0/device/vendor", "0x8086\n")
        machine.add_file("dev/dri/renderD128", "")
        (machine.root / "dev/dri/renderD128").chmod(0)
        with unprivileged():
            found = await machine.hardware().device()
    assert found.vendor == "cpu"
    assert "group render" in log_output.getvalue()


async def test_without_a_gpu_the_device_is_the_cpu(machine: FakeMachine) -> None:
    cores = usable_cores(machine.root)
    found = await machine.hardware().device()
    assert found == Device("cpu", 1, f"AMD EPYC 7R13 Processor, {cores} core{'s' if cores > 1 else ''}")
    assert found.backends == ("cpu",)


async def test_a_requested_backend_overrides_the_detection(machine: FakeMachine, log_output: io.StringIO) -> None:
    machine.add_tool("nvidia-smi", NVIDIA)
    machine.add_tool("rocm-smi", ROCM)
    assert (await machine.hardware().device("cpu")).vendor == "cpu"
    assert (await machine.hardware().device("hip")).count == 2
    assert log_output.getvalue() == ""
    assert await machine.hardware().device("sycl") == Device("intel", 1, "intel (not detected)")
    assert "no device found for the requested backend" in log_output.getvalue()
