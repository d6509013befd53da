"""What this machine has to score with, found out by asking the vendors' tools and the kernel."""

import asyncio
import os
import platform
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from vmafx.api.hardware import HARDWARE, Backend, Vendor
from vmafx.cores import usable_cores
from vmafx.logs import log
from vmafx.process.child import SpawnFailed, run_command
from vmafx.text import one_line

COMMAND_TIMEOUT = 10.0  # seconds for a tool to answer
GIVEN_UP = 5.0  # seconds more: one that hangs in its driver cannot even be killed
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader,nounits")
ROCM_SMI = ("rocm-smi", "--showproductname", "--showdriverversion", "--showmeminfo", "vram", "--json")


class Device(msgspec.Struct, frozen=True):
    """`text` is for people."""

    vendor: Vendor
    count: int
    text: str

    @property
    def backends(self) -> tuple[Backend, ...]:
        own = HARDWARE[self.vendor].backend
        return ("cpu",) if own == "cpu" else (own, "cpu")


class HostHardware:
    """A machine to look at: the programs in its PATH, and its files below `root`."""

    def __init__(self, environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> None:
        self._path, self._root = environ.get("PATH", os.defpath), root

    async def device(self, wanted: Backend | None = None) -> Device:
        """The best there is; with `wanted`, what that backend runs on, whether it is found or not."""
        if wanted == "cpu":
            return self._cpu()
        for look in (self._nvidia, self._amd, self._amd_of_the_kernel, self._intel, self._apple):
            found = await look()
            if found is not None and wanted in {None, *found.backends}:
                return found
        if wanted is None:
            return self._cpu()
        vendor = next(vendor for vendor, one in HARDWARE.items() if one.backend == wanted)
        log.warn("no device for this backend was found; it is used all the same", backend=wanted)
        return Device(vendor, 1, f"{vendor}, as told; not found")

    async def _nvidia(self) -> Device | None:
        said = await self._ask(NVIDIA_SMI)
        rows = [[part.strip() for part in line.split(",")] for line in said.splitlines()]
        rows = [row for row in rows if len(row) == 3 and row[0]]
        if said and not rows:
            log.warn("what nvidia-smi says cannot be understood", said=one_line(said))
        if not rows:
            return None
        name, driver, memory = rows[0]
        return Device("nvidia", len(rows), _text(len(rows), name, _mebibytes(memory), f"driver {driver}"))

    async def _amd(self) -> Device | None:
        said = await self._ask(ROCM_SMI)
        try:
            cards: dict[str, dict[str, str]] = msgspec.json.decode(said or "{}", type=dict[str, dict[str, str]])
        except msgspec.DecodeError:
            log.warn("what rocm-smi says cannot be understood", said=one_line(said))
            return None
        # Its versions disagree on capitals.
        told = [{key.lower(): value for key, value in card.items()} for name, card in cards.items() if "card" in name]
        if not told:
            return None
        first = told[0]
        system = {key.lower(): value for key, value in cards.get("system", {}).items()}
        memory = first.get("vram total memory (b)", "")
        return Device(
            "amd",
            len(told),
            _text(
                len(told),
                first.get("card series") or first.get("card model") or "AMD GPU",
                _mebibytes(str(int(memory) >> 20)) if memory.isdecimal() else "",
                f"driver {system['driver version']}" if "driver version" in system else "",
            ),
        )

    async def _amd_of_the_kernel(self) -> Device | None:
        return self._drm("amd", "AMD GPU", "0x1002", "dev/kfd")

    async def _intel(self) -> Device | None:
        return self._drm("intel", "Intel GPU", "0x8086", "dev/dri/renderD*")

    def _drm(self, vendor: Vendor, name: str, pci: str, door: str) -> Device | None:
        """Cards that the kernel drives, and that this user may compute on."""
        files = [
            file
            for file in self._root.glob("sys/class/drm/card*/device/vendor")
            if re.fullmatch(r"card[0-9]+", file.parts[-3]) and _read(file).strip() == pci
        ]
        if not files:
            return None
        doors = [*self._root.glob(door)]
        if any(os.access(one, os.R_OK | os.W_OK) for one in doors):
            return Device(vendor, len(files), _text(len(files), name))
        why = "this user may not; is it in the group render?" if doors else "its driver offers no computing"
        log.warn("a GPU is not used", gpu=name, why=why)
        return None

    async def _apple(self) -> Device | None:
        if (platform.system(), platform.machine()) != ("Darwin", "arm64"):
            return None
        name = await self._ask(("sysctl", "-n", "machdep.cpu.brand_string"))
        return Device("apple", 1, one_line(name) or "Apple GPU")

    def _cpu(self) -> Device:
        named = re.search(r"^model name\s*:\s*(.+)$", _read(self._root / "proc/cpuinfo"), re.MULTILINE)
        cores = usable_cores(self._root)
        name = named[1] if named else platform.machine() or "CPU"
        return Device("cpu", 1, one_line(f"{name}, {cores} core{'s' if cores > 1 else ''}"))

    async def _ask(self, command: tuple[str, ...]) -> str:
        """What a tool says; nothing if it is not here, or is of no use."""
        program = shutil.which(command[0], path=self._path)
        if program is None:
            return ""
        try:
            async with asyncio.timeout(COMMAND_TIMEOUT + GIVEN_UP):
                code, out, err = await run_command([program, *command[1:]], within=COMMAND_TIMEOUT)
        except (TimeoutError, SpawnFailed) as error:
            log.warn(
                "a tool does not work", tool=program, why=str(error) or f"no answer within {COMMAND_TIMEOUT:.0f} s"
            )
            return ""
        if code:
            log.warn("a tool does not work", tool=program, code=code, says=one_line(out or err))
            return ""
        return out


def _text(count: int, *parts: str) -> str:
    several = f"{count} x " if count > 1 else ""
    return one_line(several + ", ".join(part for part in parts if part))


def _mebibytes(text: str) -> str:
    return f"{text} MiB" if text.isdecimal() else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
