"""Jobs under injected faults: each finishes once, with the right score. `make soak` runs more jobs and faults."""

from collections import Counter
from pathlib import Path

import pytest

from tests.support.chaos import Chaos
from tests.support.chaos_agents import ChaosAgentFleet
from tests.support.chaos_plan import WEIGHTS, Fault, make_plan
from tests.support.chaos_pods import ChaosPodFleet
from vmafx.devcluster import ClusterOptions, DevCluster
from vmafx.devcluster.components import SCHEDULER

# One of each fault that is short; `make soak` has the others.
FAULTS: tuple[Fault, ...] = (
    "kill operator", "kill apiserver", "delete node", "kill agent", "kill controller", "kill worker", "delete agent",
    "cut connections",
)  # fmt: skip
WITHOUT_SCHEDULER = ClusterOptions(without=frozenset({SCHEDULER}), tethered=True)


@pytest.mark.timeout(400)
async def test_every_job_finishes_once_with_the_right_result(tmp_path: Path) -> None:
    """One job of every kind, on Pods and agents."""
    seed, jobs = 1, len(WEIGHTS)
    with DevCluster(tmp_path / "cluster", WITHOUT_SCHEDULER) as cluster:
        plan = make_plan(seed, jobs, Counter(FAULTS))
        chaos = Chaos(cluster, tmp_path, plan, ChaosPodFleet(), ChaosAgentFleet(seed), replicas=1, log=print)
        await chaos.run(within=280)
        assert chaos.done.total() == jobs
        assert chaos.changes > 4 * jobs
