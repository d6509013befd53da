"""Benchmark of the API server's CPU time for the CEL rules of VmafxJob.

Run by `make bench-rules`. The same jobs are created, placed and finished under several CRDs: ours, with `--against`
that of another git revision, and ours without rules. Placing and finishing are status patches. One API server serves
all CRDs at once, each in an API group of its own, and they take turns in small batches, so that other programs on the
machine disturb all alike. The figures are user and kernel time of the API server, and include all that a write costs.
"""

import argparse
import asyncio
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
import uvloop
import yaml
from bench.contest import NAMESPACE, SERVER_IDLE_SHARE, control_plane, servers_of, wait_until_idle
from bench.contestants import HERE, in_turns, log
from bench.usage import CORES, cpu_seconds, machine_seconds

from vmafx.api.crd import definition
from vmafx.api.fields import RULES
from vmafx.api.job import VmafxJob
from vmafx.api.meta import GROUP
from vmafx.devcluster import DevCluster, crds
from vmafx.devcluster.components import APISERVER
from vmafx.kube import JOBS, Client, ObjectKey, load_config
from vmafx.kube.resources import Resource, UntypedObject

OURS, WITHOUT_RULES = "ours", "ours without rules"
WRITERS = 8
NOW = "2026-05-28T12:30:15Z"
CRD_FILE = "config/crd/bases/vmafx.dev_vmafxjobs.yaml"
STEPS = ("create", "place", "finish")


class Turn(msgspec.Struct):
    """CPU milliseconds of the API server per write, for one batch of one CRD."""

    create: float
    place: float
    finish: float

    @property
    def job(self) -> float:
        """All three writes of a job."""
        return self.create + self.place + self.finish


def job(resource: Resource[Any], number: int) -> UntypedObject:
    """A job as clients create it."""
    spec = {
        "reference": f"s3://corpus/reference/{number:06}.mp4",
        "distorted": f"s3://corpus/distorted/{number:06}.mp4",
        "backend": "cpu",
        "priority": number % 10,
    }
    metadata = {"name": f"job-{number:06}"}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}


def placed(number: int) -> UntypedObject:
    """The status that the operator writes when it places a job."""
    scheduled = {"type": "Scheduled", "status": "True", "reason": "Placed", "lastTransitionTime": NOW}
    return {
        "phase": "Running",
        "assignedNode": f"node-{number % 50:02}",
        "controllerJobID": f"8b2aea28-9747-4c7d-9a86-{number:012}-0",
        "startedAt": NOW,
        "attempts": 1,
        "observedGeneration": 1,
        "conditions": [scheduled],
    }


def finished(number: int) -> UntypedObject:
    """The status that the operator writes when a job succeeds."""
    complete = {"type": "Complete", "status": "True", "reason": "Succeeded", "lastTransitionTime": NOW}
    summary = {"vmaf": {"mean": 91.5, "harmonicMean": 91.2, "min": 70.1, "max": 99.3}}
    done = {"phase": "Succeeded", "score": 91.5, "frames": 300, "finishedAt": NOW, "metrics": summary}
    return placed(number) | done | {"conditions": [*placed(number)["conditions"], complete]}


def without_rules(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: without_rules(part) for name, part in schema.items() if name != RULES}
    return [without_rules(part) for part in schema] if isinstance(schema, list) else schema


def crd_of(revision: str) -> UntypedObject:
    """The CRD of VmafxJob in a git revision."""
    command = ["git", "show", f"{revision}:{CRD_FILE}"]
    shown = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
    if shown.returncode:
        raise SystemExit(f"no {CRD_FILE} in git revision {revision!r}: {shown.stderr.strip()}")
    crd: UntypedObject = yaml.safe_load(shown.stdout)
    return crd


def in_group(crd: UntypedObject, group: str) -> UntypedObject:
    """The CRD in another API group."""
    spec = {**crd["spec"], "group": group}
    return {**crd, "metadata": {"name": f"{spec['names']['plural']}.{group}"}, "spec": spec}


class Bench:
    """The contestants on one API server."""

    def __init__(self, client: Client, server: int, names: list[str], batch: int) -> None:
        self._client, self._server, self._batch = client, server, batch
        self._resources: dict[str, Resource[UntypedObject]] = {
            name: Resource(f"bench-{number}.{GROUP}", JOBS.version, JOBS.plural, JOBS.kind, dict)
            for number, name in enumerate(names)
        }
        self._next = dict.fromkeys(names, 0)  # number of the next job

    async def install(self, definitions: Mapping[str, UntypedObject]) -> None:
        grouped = [in_group(definitions[name], resource.group) for name, resource in self._resources.items()]
        await crds.apply_crds(self._client, grouped)
        await wait_until_idle(self._server, SERVER_IDLE_SHARE)  # it publishes the schemas for some seconds

    async def turn(self, name: str) -> Turn:
        """One batch: all jobs created, then all placed, then all finished."""
        resource, first = self._resources[name], self._next[name]
        self._next[name] += self._batch

        async def create(number: int) -> None:
            await self._client.create(resource, job(resource, number), NAMESPACE)

        async def place(number: int) -> None:
            await self._client.patch_status(resource, ObjectKey(NAMESPACE, f"job-{number:06}"), placed(number))

        async def finish(number: int) -> None:
            await self._client.patch_status(resource, ObjectKey(NAMESPACE, f"job-{number:06}"), finished(number))

        return Turn(*[await self._measured(write, first) for write in (create, place, finish)])

    async def _measured(self, write: Callable[[int], Awaitable[None]], first: int) -> float:
        numbers = iter(range(first, first + self._batch))

        async def writer() -> None:
            for number in numbers:
                await write(number)

        before = cpu_seconds(self._server)
        await asyncio.gather(*(writer() for _ in range(WRITERS)))
        return (cpu_seconds(self._server) - before) / self._batch * 1000


async def contest(cluster: DevCluster, definitions: dict[str, UntypedObject], rounds: int, batch: int) -> None:
    processes = servers_of(cluster)
    names = list(definitions)
    async with Client(load_config(cluster.kubeconfig)) as client:
        bench = Bench(client, processes[APISERVER], names, batch)
        await bench.install(definitions)
        for name in names:
            await bench.turn(name)  # the first requests fill caches
        turns: dict[str, list[Turn]] = {name: [] for name in names}
        started, busy, own = time.perf_counter(), machine_seconds(), benchmark_seconds(processes.values())
        for number in range(rounds):
            for name in in_turns(names, number):
                turns[name].append(await bench.turn(name))
            log(f"round {number + 1} of {rounds}: {', '.join(f'{name} {turns[name][-1].job:.2f}' for name in names)}")
        ours = benchmark_seconds(processes.values()) - own
        foreign = (machine_seconds() - busy - ours) / (time.perf_counter() - started) / CORES
    report(turns, batch)
    print(f"\nOther programs used {foreign:.0%} of the machine.")


def benchmark_seconds(servers: Iterable[int]) -> float:
    """CPU time of the control plane and of this process."""
    return sum(map(cpu_seconds, servers)) + time.process_time()


def report(turns: dict[str, list[Turn]], batch: int) -> None:
    """A line for each write; a ratio is the median of the ratios within each round."""
    names, rounds = list(turns), len(turns[OURS])
    baseline = names[-1]
    print(f"\nAPI server's CPU, ms per write; medians of {rounds} rounds of {batch} jobs\n")
    others = [name for name in names if name != OURS]
    print(f"| | {' | '.join(names)} | {' | '.join(f'ours to {name}' for name in others)} |")
    print(f"|{'---|' * (1 + len(names) + len(others))}")
    for step in (*STEPS, "job"):
        figures = {name: [getattr(turn, step) for turn in turns[name]] for name in names}
        cells = [f"{statistics.median(figures[name]):.2f}" for name in names]
        ratios = [
            f"{statistics.median(a / b for a, b in zip(figures[OURS], figures[name], strict=True)):.2f}"
            for name in others
        ]
        print(f"| {'all three' if step == 'job' else step} | {' | '.join([*cells, *ratios])} |")
    print("\nCost of the rules of one job, over the CRD without rules:\n")
    for name in names[:-1]:
        extra = [one.job - other.job for one, other in zip(turns[name], turns[baseline], strict=True)]
        print(f"- {name}: {statistics.median(extra):.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default="", metavar="REVISION", help="also the CRD of this git revision")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--batch", type=int, default=200, help="jobs of one CRD in a round")
    arguments = parser.parse_args()
    ours = definition(VmafxJob)
    definitions = {OURS: ours}
    if arguments.against:
        definitions[arguments.against] = crd_of(arguments.against)
    definitions[WITHOUT_RULES] = without_rules(ours)
    with control_plane() as cluster, asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(contest(cluster, definitions, arguments.rounds, arguments.batch))


if __name__ == "__main__":
    main()
