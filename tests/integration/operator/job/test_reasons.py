"""Every condition and reason of a job, reached on a real API server and read with kubectl."""

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
from vmafx.api.kinds import VmafxJob
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
NO_RESULT = (1, "")  # exit code and termination message


class Scenario(NamedTuple):
    """The state of the cluster when a job is created, and the resulting condition."""

    reason: str
    message: str  # a regular expression
    spec: dict[str, Any] = {}
    nodes: tuple[VmafxNodeSpec, ...] = (CPU,)
    healthy: bool = True
    session: str | None = None  # agentSession of the nodes
    labels: dict[str, str] = {}  # of the nodes
    runs: bool = True  # whether Pods are started
    result: tuple[int, str] | None = None  # instead of a real worker: exit code and termination message
    others: int = 0  # jobs created before


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
    "unhealthy": Scenario("NoHealthyNode", "the nodes that fit are unhealthy", nodes=(CPU, CPU), healthy=False),
    "cordoned": Scenario("NoHealthyNode", "the one node that fits, node-0, is cordoned", nodes=(CORDONED,)),
    "no-agent": Scenario("NoAgent", "no agent has registered yet for", nodes=(AGENT,)),
    "full": Scenario("InsufficientCapacity", "the only slot of the one node that fits is taken", runs=False, others=1),
    "suspended": Scenario("Suspended", "suspended; set spec.suspend to false to let it run", {"suspend": True}),
    "elsewhere": Scenario("AwaitingScheduler", "waiting for scheduler mine to place it", {"schedulerName": "mine"}),
    "tried-again": Scenario(
        "Retrying", r"the worker exited with code 1 \(Error\)", {"retryLimit": 100}, result=NO_RESULT
    ),
    "placed": Scenario("Placed", "on node-0", runs=False),
    "placed-with-agent": Scenario("PlacedWithAgent", "on node-0", nodes=(AGENT,), session="s"),
    "scored": Scenario("Scored", r"VMAF \d+\.\d{3}"),
    "bad-model": Scenario("BadInput", "model: there is no model 'vmaf_v9'; use", {"model": "vmaf_v9"}),
    "given-up": Scenario("RetriesExhausted", "the worker exited with code 1", {"retryLimit": 0}, result=NO_RESULT),
    "too-late": Scenario("DeadlineExceeded", "not finished within 1 s of", {"activeDeadlineSeconds": 1}, runs=False),
    "cancelled": Scenario("Cancelled", "cancelled before it ran", {"cancel": True}),
}


@pytest.fixture
async def kubelet(client: Client, namespace: str, tmp_path: Path) -> AsyncIterator[Kubelet]:
    await allow_pods(client, namespace)
    async with Kubelet(client, namespace, tmp_path) as kubelet:
        yield kubelet


def described(text: str, reason: str, message: str) -> bool:
    """Whether `kubectl describe` shows a condition of this reason and message."""
    lines = [f"Message: +{message}", r"Observed Generation: +\d+", f"Reason: +{reason}", "Status: +(True|False)"]
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
        node_status = {"healthy": one.healthy, "agentSession": one.session}
        await client.patch_status(NODES, ObjectKey(namespace, meta.name), node_status)
    if not one.runs:
        kubelet.hold.clear()
    if one.result:
        kubelet.answers |= {f"{name}-{attempt}": one.result for attempt in range(50)}
    async with operating(client, namespace):
        for number in range(one.others):
            other = await submit(client, namespace, f"other-{number}", clips)
            await reaches(client, other, phase("Running"), "the other is placed first")
        key = await submit(client, namespace, name, clips, **one.spec)

        def holds(job: VmafxJob) -> bool:
            found = [(seen.type, seen.status, seen.reason) for seen in job.status.conditions]
            return (declared.condition, declared.status, declared.reason) in found

        await reaches(client, key, holds, f"{declared.condition} is {declared.status} for {declared.reason}")

        async def shown() -> bool:
            done = await asyncio.to_thread(kubectl, "describe", "vmjob", name)
            return described(done.stdout, one.reason, one.message)

        await eventually(shown, f"kubectl describe shows {one.reason}: {one.message}")


def test_every_reason_is_declared_and_tested() -> None:
    """The reasons in the code, in the declaration and in SCENARIOS are the same."""
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
    external = {"Suspending", "ExternalFailure"}  # reached in test_external_jobs.py
    assert {one.reason for one in SCENARIOS.values()} | external == written


@pytest.mark.parametrize(("name", "reason"), [("bad-model", "BadInput"), ("given-up", "RetriesExhausted")])
async def test_a_failure_is_shown_by_an_event_and_in_the_list(
    name: str, reason: str, kubelet: Kubelet, client: Client, namespace: str, clips: Path, kubectl: Kubectl
) -> None:
    one = SCENARIOS[name]
    if one.result:
        kubelet.answers[f"{name}-0"] = one.result
    await add_node(client, namespace, "pool")
    async with operating(client, namespace):
        key = await submit(client, namespace, name, clips, **one.spec)
        await reaches(client, key, phase("Failed"), "it fails")

        async def shown() -> bool:
            done = await asyncio.to_thread(kubectl, "describe", "vmjob", name)
            events = done.stdout.partition("Events:")[2]
            return re.search(rf"Warning +{reason} .* vmafx-operator +{one.message}", events) is not None

        await eventually(shown, "kubectl describe shows the event")
    listed = await asyncio.to_thread(kubectl, "get", "vmjob", "-o", "wide")
    head, row = listed.stdout.splitlines()
    assert head.split() == ["NAME", "PHASE", "SCORE", "NODE", "AGE", "BACKEND", "MODEL", "PRIORITY", "MESSAGE"]
    assert re.match(rf"{name} +Failed +pool .*{one.message}", row)


async def test_a_score_is_shown_by_an_event(
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
def running(command: list[str], output: Path) -> Iterator[None]:
    with output.open("w") as out, subprocess.Popen(command, stdout=out) as process:
        try:
            yield
        finally:
            process.terminate()


async def test_kubectl_get_watch_shows_a_job_from_start_to_score(
    kubelet: Kubelet,
    client: Client,
    namespace: str,
    clips: Path,
    cluster: DevCluster,
    kubectl_path: Path,
    tmp_path: Path,
) -> None:
    output = tmp_path / "watched"
    await add_node(client, namespace, "pool")
    command = [str(kubectl_path), "--kubeconfig", str(cluster.kubeconfig), "-n", namespace, "get", "vmjob", "-w"]
    with running(command, output):
        first = await submit(client, namespace, "first", clips, suspend=True)
        await eventually(lambda: "first" in output.read_text(), "kubectl watches")
        async with operating(client, namespace):
            await reaches(client, first, lambda job: bool(job.status.conditions), "the first waits")
            second = await submit(client, namespace, "second", clips)
            job = await reaches(client, second, phase("Succeeded"), "the second is scored")
            await eventually(lambda: "Succeeded" in output.read_text(), "kubectl shows it")
    head, *rows = output.read_text().splitlines()
    assert head.split() == ["NAME", "PHASE", "SCORE", "NODE", "AGE"]
    seen = [row.split()[1:-1] for row in rows if row.startswith("second ")]
    assert [row for number, row in enumerate(seen) if row not in seen[:number]] == [
        ["Pending"],
        ["Running", "pool"],
        ["Succeeded", str(job.status.score), "pool"],
    ]
    assert condition(job, "Complete") == ("True", "Scored")
