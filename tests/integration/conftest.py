"""Fixtures of several test packages: clips, a fleet that scores jobs, a controller for agents, a faulty proxy."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.fleet import ScoringFleet, make_clips, scoring_fleet
from tests.support.memory_controller import MemoryController
from tests.support.proxy import FaultyProxy
from vmafx.hardware.devices import HostHardware
from vmafx.hardware.speed import frames_per_second
from vmafx.kube import Client


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small clips; do not modify it."""
    return make_clips(tmp_path_factory.mktemp("clips"))


@pytest.fixture(scope="session")
async def speed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The speed of this machine as measured by an agent: a speed.json to copy to its state folder."""
    folder = tmp_path_factory.mktemp("speed")
    assert await frames_per_second(folder, await HostHardware().device("cpu")) > 0
    assert sorted(path.name for path in folder.iterdir()) == ["speed.json"]
    return folder / "speed.json"


@pytest.fixture
async def fleet(client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[ScoringFleet]:
    """A node with two slots, the job reconciler, and a kubelet that runs the real worker."""
    async with scoring_fleet(client, namespace, tmp_path) as fleet:
        yield fleet


@pytest.fixture
async def controller() -> AsyncIterator[MemoryController]:
    async with MemoryController() as controller:
        yield controller


@pytest.fixture
async def proxy(client: Client) -> AsyncIterator[FaultyProxy]:
    async with FaultyProxy(client.config) as proxy:
        yield proxy


@pytest.fixture
async def proxied_client(proxy: FaultyProxy) -> AsyncIterator[Client]:
    """A client whose requests go through the proxy."""
    async with Client(proxy.config) as client:
        yield client
