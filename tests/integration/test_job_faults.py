"""Jobs through bad times: whatever is killed, each ends once, and with the right score. `make soak` does it longer."""

from collections import Counter
from pathlib import Path

import pytest

from tests.support.chaos import Chaos
from tests.support.chaos_plan import Fault, make_plan
from tests.support.chaos_pods import PodFleet
from vmafx.devcluster import DevCluster, Options
from vmafx.devcluster.components import SCHEDULER

WITHOUT_SCHEDULER = Options(without=frozenset({SCHEDULER}), tethered=True)


@pytest.mark.parametrize(
    ("seed", "jobs", "replicas", "faults"),
    [
        (
            1, 40, 1,
            {"kill operator": 3, "kill apiserver": 1, "kill etcd": 1, "delete node": 1, "cordon node": 1},
        ),
        (2, 24, 2, {"stop leader": 1, "kill operator": 1}),
    ],
    ids=["killed", "stopped"],
)  # fmt: skip
async def test_every_job_ends_once_and_well(
    seed: int, jobs: int, replicas: int, faults: dict[Fault, int], tmp_path: Path
) -> None:
    with DevCluster(tmp_path / "cluster", WITHOUT_SCHEDULER) as cluster:
        plan = make_plan(seed, jobs, Counter(faults))
        chaos = Chaos(cluster, tmp_path, plan, PodFleet(), replicas=replicas, say=print)
        await chaos.run(within=540)
        assert chaos.done.total() == jobs
        assert chaos.moments > 4 * jobs
