"""Detects the device to score with, using the vendors' tools and the kernel."""

import asyncio
import os
import platform
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from vmafx.api.hardware import AUTO, HARDWARE, Backend, Vendor
from vmafx.cores import usable_cores
from vmafx.logs import log
from vmafx.process.child import SpawnFailed, run_command
from vmafx.text import one_line

COMMAND_TIMEOUT = 10.0  # seconds for a tool to finish
KILL_TIMEOUT = 5.0  # seconds for a killed tool to end; one that hangs in its driver does not
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits")
ROCM_SMI = ("rocm-smi", "--showproductname", "--showdriverversion", "--showmeminfo", "vram", "--json")


class Device(msgspec.Struct, frozen=True):
    """The devices of one vendor. `text` describes them, such as "2 x NVIDIA L4, 23034 MiB, driver 550.54.15"."""

    vendor: Vendor
    count: int
    text: str

    @property
    def backends(self) -> tuple[Backend, ...]:
        own = HARDWARE[self.vendor].backend
        return ("cpu",) if own == "cpu" else (own, "cpu")

    @property
    def worker_backend(self) -> str:
        """VMAFX_BACKEND of a worker on a machine that registers with this device.

        A machine that registers with its CPU must not use a GPU. One with a GPU scores jobs without a backend with the
        best engine it has, which may be that of the CPU.
        """
        return "cpu" if self.vendor == "cpu" else AUTO


class HostHardware:
    """The machine to examine: the tools in its PATH, and its files below `root`."""

    def __init__(self, environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> None:
        self._path, self._root = environ.get("PATH", os.defpath), root
        self._gpus = (self._nvidia, self._amd, self._amd_without_tools, self._intel, self._apple)

    async def device(self, wanted: Backend | None = None) -> Device:
        """The first GPU found, else the CPU; with `wanted`, the device of that backend, even if it is not found."""
        if wanted == "cpu":
            return self._cpu()
        for detect in self._gpus:
            found = await detect()
            if found is not None and wanted in {None, *found.backends}:
                return found
        if wanted is None:
            return self._cpu()
        vendor = next(vendor for vendor, hardware in HARDWARE.items() if hardware.backend == wanted)
        log.warn("no device found for the requested backend; using it anyway", backend=wanted)
        return Device(vendor, 1, f"{vendor} (not detected)")

    async def devices(self) -> dict[Backend, Device]:
        """Every device found, by its own backend; the CPU is always one."""
        found: dict[Backend, Device] = {"cpu": self._cpu()}
        for detect in self._gpus:
            device = await detect()
            if device is not None:
                found.setdefault(device.backends[0], device)
        return found

    async def _nvidia(self) -> Device | None:
        output = await self._run_tool(NVIDIA_SMI)
        rows = [[part.strip() for part in line.split(",")] for line in output.splitlines()]
        rows = [row for row in rows if len(row) == 3 and row[0]]
        if output and not rows:
            log.warn("cannot parse the output of a device tool", tool="nvidia-smi", output=one_line(output))
        if not rows:
            return None
        name, driver, memory = rows[0]
        return Device("nvidia", len(rows), _describe(len(rows), name, _mebibytes(memory), f"driver {driver}"))

    async def _amd(self) -> Device | None:
        output = await self._run_tool(ROCM_SMI)
        try:
            sections: dict[str, dict[str, str]] = msgspec.json.decode(output or "{}", type=dict[str, dict[str, str]])
        except msgspec.DecodeError:
            log.warn("cannot parse the output of a device tool", tool="rocm-smi", output=one_line(output))
            return None
        # The case of its keys differs between versions.
        cards = [
            {key.lower(): value for key, value in card.items()} for name, card in sections.items() if "card" in name
        ]
        if not cards:
            return None
        first = cards[0]
        system = {key.lower(): value for key, value in sections.get("system", {}).items()}
        memory = first.get("vram total memory (b)", "")
        return Device(
            "amd",
            len(cards),
            _describe(
                len(cards),
                first.get("card series") or first.get("card model") or "AMD GPU",
                _mebibytes(str(int(memory) >> 20)) if memory.isdecimal() else "",
                f"driver {system['driver version']}" if "driver version" in system else "",
            ),
        )

    async def _amd_without_tools(self) -> Device | None:
        return self._drm("amd", "AMD GPU", "0x1002", "dev/kfd")

    async def _intel(self) -> Device | None:
        return self._drm("intel", "Intel GPU", "0x8086", "dev/dri/renderD*")

    def _drm(self, vendor: Vendor, name: str, pci_vendor: str, device_files: str) -> Device | None:
        """Cards with a kernel driver, if this user may open one of its device files."""
        cards = [
            file
            for file in self._root.glob("sys/class/drm/card*/device/vendor")
            if re.fullmatch(r"card[0-9]+", file.parts[-3]) and _read(file).strip() == pci_vendor
        ]
        if not cards:
            return None
        found = [*self._root.glob(device_files)]
        if any(os.access(file, os.R_OK | os.W_OK) for file in found):
            return Device(vendor, len(cards), _describe(len(cards), name))
        why = "permission denied; is this user in the group render?" if found else "its driver offers no compute device"
        log.warn("GPU not used", gpu=name, error=why)
        return None

    async def _apple(self) -> Device | None:
        if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
            return None
        name = await self._run_tool(("sysctl", "-n", "machdep.cpu.brand_string"))
        return Device("apple", 1, one_line(name) or "Apple GPU")

    def _cpu(self) -> Device:
        model = re.search(r"^model name\s*:\s*(.+)$", _read(self._root / "proc/cpuinfo"), re.MULTILINE)
        cores = usable_cores(self._root)
        name = model[1] if model else platform.machine() or "CPU"
        return Device("cpu", 1, one_line(f"{name}, {cores} core{'s' if cores > 1 else ''}"))

    async def _run_tool(self, command: tuple[str, ...]) -> str:
        """The output of a tool; empty if it is not installed or fails."""
        program = shutil.which(command[0], path=self._path)
        if program is None:
            return ""
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT + KILL_TIMEOUT):
                code, out, err = await run_command([program, *command[1:]], within=COMMAND_TIMEOUT)
        except (TimeoutError, SpawnFailed) as error:
            log.warn(
                "device tool failed", tool=program, error=str(error) or f"no answer within {COMMAND_TIMEOUT:.0f} s"
            )
            return ""
        if code:
            log.warn("device tool failed", tool=program, code=code, output=one_line(out or err))
            return ""
        return out


def _describe(count: int, *parts: str) -> str:
    prefix = f"{count} x " if count > 1 else ""
    return one_line(prefix + ", ".join(part for part in parts if part))


def _mebibytes(text: str) -> str:
    return f"{text} MiB" if text.isdecimal() else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
