"""Every condition that a job can have, and every reason for it: reached on a real API server, and read with kubectl."""

import ast
import asyncio
import inspect
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest

from tests.conftest import Kubectl
from tests.support.fleet import add_node, allow_pods, condition, operating, phase, reaches, submit
from tests.support.kubelet import Kubelet
from tests.support.waiting import eventually
from vmafx.api import VmafxJob
from vmafx.api.meta import LocalSecretRef, ObjectMeta
from vmafx.api.node import VmafxNode, VmafxNodeSpec
from vmafx.devcluster import DevCluster
from vmafx.jobs import outcome
from vmafx.jobs import outcome as ends
from vmafx.kube import NODES, Client, ObjectKey
from vmafx.operator.job import decide, status, steps
from vmafx.operator.job.kind import JOB
from vmafx.scheduling import requirements

CPU = VmafxNodeSpec("cpu")
CORDONED, AGENT = VmafxNodeSpec("cpu", unschedulable=True), VmafxNodeSpec("cpu", runtime="Agent")
SILENT = (1, "")  # how a worker ends that leaves no answer


class Scenario(NamedTuple):
    """What there is when a job comes, and what its condition then says."""

    reason: str
    told: str  # may be a pattern
    spec: dict[str, Any] = {}
    nodes: tuple[VmafxNodeSpec, ...] = (CPU,)
    healthy: bool = True
    session: str | None = None  # of the nodes' agent
    labels: dict[str, str] = {}  # of the nodes
    runs: bool = True  # whether Pods are started
    answer: tuple[int, str] | None = None  # in place of what a worker says
    others: int = 0  # jobs that came before


SCENARIOS = {
    "no-nodes": Scenario("NoNodes", "there is no VmafxNode in namespace test-", nodes=()),
    "no-node-with-the-labels": Scenario(
        "NoNodes",
        "there is no VmafxNode with the labels of its nodeSelector in namespace test-",
        {"nodeSelector": {"rack": "a"}},
        labels={"rack": "b"},
    ),
    "no-gpu": Scenario("BackendUnavailable", "no node has a GPU for backend cuda", {"backend": "cuda"}),
    "no-agents-for-credentials": Scenario(
        "BackendUnavailable",
        "its credentialsSecretRef needs a node that runs jobs as Pods",
        {"credentialsSecretRef": LocalSecretRef("keys")},
        nodes=(AGENT,),
        session="s",
    ),
    "unhealthy": Scenario("NoHealthyNode", "the 2 nodes that fit are unhealthy", nodes=(CPU, CPU), healthy=False),
    "cordoned": Scenario("NoHealthyNode", "the one node that fits, node-0, is cordoned", nodes=(CORDONED,)),
    "no-agent": Scenario("NoAgent", "no agent has registered yet for", nodes=(AGENT,)),
    "full": Scenario("InsufficientCapacity", "the only slot of the one node that fits is taken", runs=False, others=1),
    "suspended": Scenario("Suspended", "suspended; set spec.suspend to false to let it run", {"suspend": True}),
    "elsewhere": Scenario("AwaitingScheduler", "waiting for scheduler mine to place it", {"schedulerName": "mine"}),
    "tried-again": Scenario(
        "Retrying", r"the worker ended with exit code 1 \(Error\)", {"retryLimit": 100}, answer=SILENT
    ),
    "placed": Scenario("Placed", "on node-0", runs=False),
    "placed-with-agent": Scenario("PlacedWithAgent", "on node-0", nodes=(AGENT,), session="s"),
    "scored": Scenario("Scored", r"VMAF \d+\.\d{3}"),
    "bad-model": Scenario("BadInput", "model: there is no model 'vmaf_v9'; use", {"model": "vmaf_v9"}),
    "given-up": Scenario("RetriesExhausted", "the worker ended with exit code 1", {"retryLimit": 0}, answer=SILENT),
    "too-late": Scenario("DeadlineExceeded", "not finished within 1 s of", {"activeDeadlineSeconds": 1}, runs=False),
    "cancelled": Scenario("Cancelled", "cancelled before it ran", {"cancel": True}),
}


@pytest.fixture
async def kubelet(client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[Kubelet]:
    await allow_pods(client, namespace)
    async with Kubelet(client, namespace, tmp_path) as kubelet:
        yield kubelet


def described(text: str, reason: str, told: str) -> bool:
    """Whether `kubectl describe` shows a condition of this reason and message."""
    lines = [f"Message: +{told}", r"Observed Generation: +\d+", f"Reason: +{reason}", "Status: +(True|False)"]
    return re.search(r"[^\n]*\n *".join(lines), text) is not None


@pytest.mark.parametrize("name", SCENARIOS)
async def test_each_reason_is_reached_and_described(
    name: str, kubelet: Kubelet, client: Client, namespace: str, clips: Path, kubectl: Kubectl
) -> None:
    one = SCENARIOS[name]
    (declared,) = (known for known in JOB.reasons if known.reason == one.reason)
    for number, spec in enumerate(one.nodes):
        meta = ObjectMeta(name=f"node-{number}", labels=one.labels)
        await client.create(NODES, VmafxNode(metadata=meta, spec=spec), namespace)
        judged = {"healthy": one.healthy, "agentSession": one.session}
        await client.patch_status(NODES, ObjectKey(namespace, meta.name), judged)
    if not one.runs:
        kubelet.hold.clear()
    if one.answer:
        kubelet.answers |= {f"{name}-{attempt}": one.answer for attempt in range(50)}
    async with operating(client, namespace):
        for number in range(one.others):
            other = await submit(client, namespace, f"other-{number}", clips)
            await reaches(client, other, phase("Running"), "the other is there first")
        key = await submit(client, namespace, name, clips, **one.spec)

        def holds(job: VmafxJob) -> bool:
            found = [(seen.type, seen.status, seen.reason) for seen in job.status.conditions]
            return (declared.condition, declared.status, declared.reason) in found

        await reaches(client, key, holds, f"{declared.condition} is {declared.status} for {declared.reason}")

        async def shown() -> bool:
            done = await asyncio.to_thread(kubectl, "describe", "vmjob", name)
            return described(done.stdout, one.reason, one.told)

        await eventually(shown, f"kubectl describe shows {one.reason}: {one.told}")


def test_no_reason_is_left_out() -> None:
    """What the code can write, what the reference tells, and what is reached above are the same."""
    written = {
        *get_args(requirements.PendingReason),
        *get_args(outcome.FailureReason),
        *get_args(get_type_hints(steps.KeepPending)["reason"]),
    }
    written |= set(decide.PLACED.values())
    sources = [ast.parse(inspect.getsource(module)) for module in (status, ends)]
    for call in (node for source in sources for node in ast.walk(source)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "with_condition":
            reason = call.args[3]
            written |= {reason.value} if isinstance(reason, ast.Constant) else set()
    assert written == {one.reason for one in JOB.reasons}
    with_another_controller = {"Suspending", "ExternalFailure"}  # reached in test_following.py
    assert {one.reason for one in SCENARIOS.values()} | with_another_controller == written


@pytest.mark.parametrize(("name", "told"), [("bad-model", "BadInput"), ("given-up", "RetriesExhausted")])
async def test_a_failure_is_an_event_and_stands_in_the_list(
    name: str, told: str, kubelet: Kubelet, client: Client, namespace: str, clips: Path, kubectl: Kubectl
) -> None:
    one = SCENARIOS[name]
    if one.answer:
        kubelet.answers[f"{name}-0"] = one.answer
    await add_node(client, namespace, "pool")
    async with operating(client, namespace):
        key = await submit(client, namespace, name, clips, **one.spec)
        await reaches(client, key, phase("Failed"), "it fails")

        async def shown() -> bool:
            done = await asyncio.to_thread(kubectl, "describe", "vmjob", name)
            events = done.stdout.partition("Events:")[2]
            return re.search(rf"Warning +{told} .* vmafx-operator +{one.told}", events) is not None

        await eventually(shown, "kubectl describe shows the event")
    listed = await asyncio.to_thread(kubectl, "get", "vmjob", "-o", "wide")
    head, row = listed.stdout.splitlines()
    assert head.split() == ["NAME", "PHASE", "SCORE", "NODE", "AGE", "BACKEND", "MODEL", "PRIORITY", "MESSAGE"]
    assert re.match(rf"{name} +Failed +pool .*{one.told}", row)


async def test_a_score_is_an_event_too(
    kubelet: Kubelet, client: Client, namespace: str, clips: Path, kubectl: Kubectl
) -> None:
    await add_node(client, namespace, "pool")
    async with operating(client, namespace):
        key = await submit(client, namespace, "good", clips)
        job = await reaches(client, key, phase("Succeeded"), "it is scored")

        async def shown() -> bool:
            done = await asyncio.to_thread(kubectl, "describe", "vmjob", "good")
            events = done.stdout.partition("Events:")[2]
            return (
                re.search(rf"Normal +Scored .* vmafx-operator +VMAF {job.status.score:.3f}, 6 frames", events)
                is not None
            )

        await eventually(shown, "kubectl describe shows the event")


@contextmanager
def running(command: list[str], said: Path) -> Iterator[None]:
    with said.open("w") as out, subprocess.Popen(command, stdout=out) as process:
        try:
            yield
        finally:
            process.terminate()


async def test_a_job_is_watched_from_its_start_to_its_score(
    kubelet: Kubelet,
    client: Client,
    namespace: str,
    clips: Path,
    cluster: DevCluster,
    kubectl_path: Path,
    tmp_path: Path,
) -> None:
    said = tmp_path / "watched"
    await add_node(client, namespace, "pool")
    command = [str(kubectl_path), "--kubeconfig", str(cluster.kubeconfig), "-n", namespace, "get", "vmjob", "-w"]
    with running(command, said):
        first = await submit(client, namespace, "first", clips, suspend=True)
        await eventually(lambda: "first" in said.read_text(), "kubectl watches")
        async with operating(client, namespace):
            await reaches(client, first, lambda job: bool(job.status.conditions), "the first waits")
            second = await submit(client, namespace, "second", clips)
            job = await reaches(client, second, phase("Succeeded"), "the second is scored")
            await eventually(lambda: "Succeeded" in said.read_text(), "kubectl shows it")
    head, *rows = said.read_text().splitlines()
    assert head.split() == ["NAME", "PHASE", "SCORE", "NODE", "AGE"]
    seen = [row.split()[1:-1] for row in rows if row.startswith("second ")]
    assert [row for number, row in enumerate(seen) if row not in seen[:number]] == [
        ["Pending"],
        ["Running", "pool"],
        ["Succeeded", str(job.status.score), "pool"],
    ]
    assert condition(job, "Complete") == ("True", "Scored")
