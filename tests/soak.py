"""`make soak`: hundreds of jobs through every fault we know, for as long as it takes; judged by the whole history.

Before them come the stories of agents that take minutes each, unless jobs are run by Pods only.

The same seed makes the same plan: the same jobs, edits and faults in the same order. When the machine gets to each is
its own affair, so a run that failed may have to be repeated a few times.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.support.chaos import Chaos, Fleet
from tests.support.chaos_agents import AgentFleet
from tests.support.chaos_plan import Fault, make_plan
from tests.support.chaos_pods import PodFleet
from tests.support.stories import new_world, tell_all
from vmafx.devcluster import ClusterOptions, DevCluster
from vmafx.devcluster.components import SCHEDULER

# So many in a hundred jobs.
ANYWHERE: dict[Fault, float] = {"kill operator": 2.0, "stop leader": 0.6, "kill apiserver": 1.0, "kill etcd": 0.8}
OF_PODS: dict[Fault, float] = {"delete node": 0.8, "cordon node": 0.8}
OF_AGENTS: dict[Fault, float] = {
    "kill agent": 2.0, "kill controller": 2.0, "kill worker": 1.5, "cut connections": 1.0, "kill controllers": 0.6,
    "stop agent": 0.6, "delete agent": 0.8, "cordon agent": 0.6, "lose agent": 0.4, "freeze agent": 0.4,
}  # fmt: skip
FAULTS = {"pod": ANYWHERE | OF_PODS, "agent": ANYWHERE | OF_AGENTS, "both": ANYWHERE | OF_PODS | OF_AGENTS}


async def tell_stories(say: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with new_world(Path(folder)) as world:
            await tell_all(world, say)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtime", choices=FAULTS, default="both", help="who runs the jobs")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--within", type=float, default=3600.0, help="seconds after which it has failed")
    arguments = parser.parse_args()
    shares = FAULTS[arguments.runtime]
    faults = Counter({fault: max(1, round(arguments.jobs * share / 100)) for fault, share in shares.items()})
    plan, began = make_plan(arguments.seed, arguments.jobs, faults), time.monotonic()
    fleets: list[Fleet] = [PodFleet()] if arguments.runtime != "agent" else []
    fleets += [AgentFleet(arguments.seed)] if arguments.runtime != "pod" else []

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True)

    if arguments.runtime != "pod":
        asyncio.run(tell_stories(say))
    say(f"seed {arguments.seed}: {arguments.jobs} jobs, {faults.total()} faults")
    with tempfile.TemporaryDirectory() as folder:
        options = ClusterOptions(without=frozenset({SCHEDULER}), tethered=True)
        with DevCluster(Path(folder) / "cluster", options) as cluster:
            chaos = Chaos(cluster, Path(folder), plan, *fleets, replicas=2, say=say)
            try:
                asyncio.run(chaos.run(arguments.within))
            except AssertionError as wrong:
                sys.exit(f"seed {arguments.seed} failed:\n{wrong}")
    ended = ", ".join(f"{count} {phase}" for phase, count in sorted(chaos.done.items()) if count)
    say(f"all is well: {ended}; {chaos.moments} versions of jobs, Pods and nodes broke no law")


if __name__ == "__main__":
    main()
