"""Clips that are scored in a moment, made once for all who only read them; and what agents are tried with."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fleet import make_clips
from tests.support.memory_controller import MemoryController
from vmafx.hardware.devices import HostHardware
from vmafx.hardware.speed import frames_per_second


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clips(tmp_path_factory.mktemp("clips"))


@pytest.fixture(scope="session")
async def speed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """How fast this machine is, as an agent measured it once."""
    folder = tmp_path_factory.mktemp("speed")
    assert await frames_per_second(folder, await HostHardware().device("cpu")) > 0
    assert sorted(path.name for path in folder.iterdir()) == ["speed.json"]
    return folder / "speed.json"


@pytest.fixture
async def controller() -> AsyncIterator[MemoryController]:
    async with MemoryController() as controller:
        yield controller
