"""Faults on the whole path of samples, from the agents to the status of a training: nothing is lost or repeated."""

from pathlib import Path

import pytest

from tests.support.training_chaos import TrainingChaos
from tests.support.training_processes import KnownClips, make_known_clips, training_processes
from vmafx.devcluster import DevCluster
from vmafx.kube import Client

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def known_clips(tmp_path_factory: pytest.TempPathFactory) -> KnownClips:
    return make_known_clips(tmp_path_factory.mktemp("known-clips"))


async def test_kills_at_any_moment(
    cluster: DevCluster, client: Client, known_clips: KnownClips, tmp_path: Path
) -> None:
    async with training_processes(cluster, client, "kills", tmp_path, "one", "two", replicas=2) as processes:
        chaos = TrainingChaos(processes, known_clips, seed=1, jobs=30, faults=15)
        await chaos.run()
        assert set(chaos.injected) == {"kill trainer", "kill agent", "kill controller", "kill controllers"}
