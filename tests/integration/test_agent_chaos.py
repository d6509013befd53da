"""Jobs of agents through bad times: whatever is killed, each ends once, and with the right score.

`make soak ARGS="--runtime agent"` does it longer.
"""

from collections import Counter
from pathlib import Path

from tests.support.chaos import Chaos
from tests.support.chaos_agents import AgentFleet
from tests.support.chaos_plan import Fault, make_plan
from vmafx.devcluster import DevCluster, Options
from vmafx.devcluster.components import MANAGER, SCHEDULER

ALONE = Options(without=frozenset({SCHEDULER, MANAGER}), tethered=True)
FAULTS: dict[Fault, int] = {
    "kill operator": 2, "kill controller": 2, "kill agent": 2, "kill worker": 2, "kill apiserver": 1, "kill etcd": 1,
    "delete agent": 1, "cut connections": 1,
}  # fmt: skip


async def test_every_job_ends_once_and_well(tmp_path: Path) -> None:
    seed, jobs = 1, 24
    with DevCluster(tmp_path / "cluster", ALONE) as cluster:
        plan = make_plan(seed, jobs, Counter(FAULTS))
        chaos = Chaos(cluster, tmp_path, plan, AgentFleet(seed), replicas=1, say=print, at_once=8)
        await chaos.run(within=540)
        assert chaos.done.total() == jobs
        assert chaos.moments > 3 * jobs
