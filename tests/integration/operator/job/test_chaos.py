"""Jobs under faults: whatever is killed, each job ends once, with the right score. `make soak` runs this longer."""

from collections import Counter
from pathlib import Path

import pytest

from tests.support.chaos import Chaos
from tests.support.chaos_agents import AgentFleet
from tests.support.chaos_plan import WEIGHTS, Fault, make_plan
from tests.support.chaos_pods import PodFleet
from vmafx.devcluster import ClusterOptions, DevCluster
from vmafx.devcluster.components import SCHEDULER

# One of each short fault; `make soak` has the others, and more of these.
FAULTS: tuple[Fault, ...] = (
    "kill operator", "kill apiserver", "delete node", "kill agent", "kill controller", "kill worker", "delete agent",
    "cut connections",
)  # fmt: skip
WITHOUT_SCHEDULER = ClusterOptions(without=frozenset({SCHEDULER}), tethered=True)


@pytest.mark.timeout(400)
async def test_every_job_ends_once_with_the_right_result(tmp_path: Path) -> None:
    """Jobs of every kind, run as Pods and by agents."""
    seed, jobs = 1, len(WEIGHTS)
    with DevCluster(tmp_path / "cluster", WITHOUT_SCHEDULER) as cluster:
        plan = make_plan(seed, jobs, Counter(FAULTS))
        chaos = Chaos(cluster, tmp_path, plan, PodFleet(), AgentFleet(seed), replicas=1, say=print)
        await chaos.run(within=280)
        assert chaos.done.total() == jobs
        assert chaos.moments > 4 * jobs
