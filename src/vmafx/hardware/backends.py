"""The backends of this machine: their devices, and the engines that score on them."""

import asyncio

import msgspec

from vmafx.api.hardware import Backend
from vmafx.hardware.devices import HostHardware
from vmafx.scoring.engines.find import Engines


class BackendRow(msgspec.Struct, frozen=True):
    """A backend on this machine. `device` is empty if none was found; without an `engine`, `problem` says why."""

    backend: Backend
    device: str
    count: int
    engine: str
    problem: str


async def find_backends() -> list[BackendRow]:
    """All backends, in the order of preference."""
    found, engines = await asyncio.gather(HostHardware().devices(), Engines().probe())
    rows = []
    for probed in engines:
        device = found.get(probed.backend)
        engine = probed.facts.versions if probed.facts is not None else ""
        rows.append(
            BackendRow(
                probed.backend,
                device.text if device is not None else "",
                device.count if device is not None else 0,
                engine,
                probed.problem,
            )
        )
    return rows
