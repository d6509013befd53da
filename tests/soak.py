"""`make soak`: hundreds of jobs under injected faults; then all invariants are checked on the whole history.

Unless --runtime is pod, the long scenarios of agents (several minutes) run first. With --runtime serving, inference
services are edited under faults instead; --jobs is the number of edits. With --runtime training, the samples of jobs
train models while trainers, controllers and agents are killed.

The same seed gives the same plan: the same jobs, edits and faults in the same order. Their timing varies, so a failed
run may have to be repeated a few times to fail again.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.chaos import Chaos, Fleet
from tests.support.chaos_agents import ChaosAgentFleet
from tests.support.chaos_plan import Fault, make_plan
from tests.support.chaos_pods import ChaosPodFleet
from tests.support.scenarios import run_all, scenario_cluster
from tests.support.serving_chaos import ServingChaos, serving_cluster
from tests.support.serving_faults import SERVING_FAULTS
from tests.support.serving_plan import make_services
from tests.support.training_chaos import TrainingChaos
from tests.support.training_processes import make_known_clips, training_processes
from vmafx.devcluster import ClusterOptions, DevCluster, crds
from vmafx.devcluster.components import SCHEDULER
from vmafx.kube import Client, load_config

# Number of faults per hundred jobs.
CONTROL_PLANE: dict[Fault, float] = {"kill operator": 2.0, "stop leader": 0.6, "kill apiserver": 1.0, "kill etcd": 0.8}
POD_NODES: dict[Fault, float] = {"delete node": 0.8, "cordon node": 0.8}
AGENTS: dict[Fault, float] = {
    "kill agent": 2.0, "kill controller": 2.0, "kill worker": 1.5, "cut connections": 1.0, "kill controllers": 0.6,
    "stop agent": 0.6, "delete agent": 0.8, "cordon agent": 0.6, "lose agent": 0.4, "freeze agent": 0.4,
}  # fmt: skip
SERVICES, EDITS = 4, 10  # of each round with inference services
TRAINED_JOBS = 36  # of each round with a training
FAULTS = {"pod": CONTROL_PLANE | POD_NODES, "agent": CONTROL_PLANE | AGENTS, "both": CONTROL_PLANE | POD_NODES | AGENTS}


async def run_services(seed: int, edits: int, log: Callable[[str], None]) -> None:
    """Edits of inference services under every kind of fault, in rounds of a few dozen edits."""
    with tempfile.TemporaryDirectory() as folder:
        async with serving_cluster(Path(folder)) as shared:
            for number in range(max(1, edits // (SERVICES * EDITS))):
                fault = list(SERVING_FAULTS)[number % len(SERVING_FAULTS)]
                run = ServingChaos(shared, f"{fault}-{number}", make_services(seed + number, SERVICES, EDITS))
                await SERVING_FAULTS[fault](run, Path(folder), random.Random(seed + number))
                log(f"{fault}, seed {seed + number}: no violation in {run.changes} changes")


async def run_trainings(seed: int, jobs: int, log: Callable[[str], None]) -> None:
    """Jobs whose samples train a model, with a new training every few dozen jobs, and a kill for every two jobs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clips = make_known_clips(folder)
        with DevCluster(folder / "cluster", ClusterOptions(tethered=True)) as cluster:
            async with Client(load_config(cluster.kubeconfig)) as client:
                await crds.install_crds(client)
                for number in range(seed, seed + max(1, jobs // TRAINED_JOBS)):
                    options: dict[str, Any] = {"replicas": 2, "environment": {"VMAFX_LOG_LEVEL": "warn"}}
                    fleet = training_processes(cluster, client, f"seed-{number}", folder, "one", "two", **options)
                    async with fleet as processes:
                        chaos = TrainingChaos(processes, clips, number, TRAINED_JOBS, TRAINED_JOBS // 2)
                        await chaos.run()
                    log(f"seed {number}: no violation after {chaos.injected.total()} kills")


async def run_scenarios(log: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with scenario_cluster(Path(folder)) as shared:
            await run_all(shared, log)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--runtime", choices=[*FAULTS, "serving", "training"], default="both", help="where jobs run (default: both)"
    )
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--within", type=float, default=3600.0, help="timeout in seconds")
    arguments = parser.parse_args()
    started = time.monotonic()

    def log(text: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {text}", flush=True)

    if arguments.runtime == "serving":
        asyncio.run(run_services(arguments.seed, arguments.jobs, log))
        return
    if arguments.runtime == "training":
        asyncio.run(run_trainings(arguments.seed, arguments.jobs, log))
        return
    shares = FAULTS[arguments.runtime]
    faults = Counter({fault: max(1, round(arguments.jobs * share / 100)) for fault, share in shares.items()})
    plan = make_plan(arguments.seed, arguments.jobs, faults)
    fleets: list[Fleet] = [ChaosPodFleet()] if arguments.runtime != "agent" else []
    fleets += [ChaosAgentFleet(arguments.seed)] if arguments.runtime != "pod" else []

    if arguments.runtime != "pod":
        asyncio.run(run_scenarios(log))
    log(f"seed {arguments.seed}: {arguments.jobs} jobs, {faults.total()} faults")
    with tempfile.TemporaryDirectory() as folder:
        options = ClusterOptions(without=frozenset({SCHEDULER}), tethered=True)
        with DevCluster(Path(folder) / "cluster", options) as cluster:
            chaos = Chaos(cluster, Path(folder), plan, *fleets, replicas=2, log=log)
            try:
                asyncio.run(chaos.run(arguments.within))
            except AssertionError as error:
                sys.exit(f"seed {arguments.seed} failed:\n{error}")
    phases = ", ".join(f"{count} {phase}" for phase, count in sorted(chaos.done.items()) if count)
    log(f"passed: {phases}; no violation in {chaos.changes} changes of jobs, Pods and nodes")


if __name__ == "__main__":
    main()
