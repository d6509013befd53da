"""Jobs that another controller has: the real API server, and a real gRPC server that plays that controller."""

import asyncio
import math
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.conftest import Kubectl
from tests.support.elsewhere import Elsewhere, Told
from tests.support.fleet import add_node, condition, operating, phase, reaches
from tests.support.operators import operator
from tests.support.waiting import eventually
from vmafx.api.job import VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.devcluster import DevCluster
from vmafx.kube import JOBS, NAMESPACES, Client, ObjectKey
from vmafx.kube.core import PODS
from vmafx.operator.job import foreign, foreign_jobs
from vmafx.operator.job.reconciler import JobReconciler
from vmafx.wire import controller_pb2 as wire


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """How often is a matter of unit tests."""
    monkeypatch.setattr(foreign_jobs, "POLL_INTERVAL", 0.2)
    monkeypatch.setattr(foreign_jobs, "MAX_POLL_INTERVAL", 1.0)


@pytest.fixture
def sockets() -> Iterator[str]:
    """Where controllers listen, each at the name of its namespace; short, since a socket's path may not be long."""
    with tempfile.TemporaryDirectory() as folder:
        yield f"unix:{folder}/{{namespace}}"


@pytest.fixture
async def elsewhere(sockets: str, namespace: str) -> AsyncIterator[Elsewhere]:
    async with Elsewhere(sockets.replace("{namespace}", namespace)) as controller:
        yield controller


@asynccontextmanager
async def follows(client: Client, elsewhere: Elsewhere, namespace: str) -> AsyncIterator[JobReconciler]:
    async with operating(client, namespace, controllers=elsewhere.address) as running:
        yield running


async def give(client: Client, namespace: str, name: str, *, status: Any = None, **spec: Any) -> ObjectKey:
    """A job that another scheduler gave to its controller, as NAME-1."""
    wanted = VmafxJobSpec("file:///r.mkv", "file:///d.mkv", **{"schedulerName": "other", **spec})
    await client.create(JOBS, VmafxJob(metadata=ObjectMeta(name=name), spec=wanted), namespace)
    key = ObjectKey(namespace, name)
    await client.patch_status(JOBS, key, {"controllerJobID": f"{name}-1", **(status or {})})
    return key


def says(job: VmafxJob, kind: str = "Scheduled") -> str:
    return next((one.message for one in job.status.conditions if one.type == kind), "")


async def no_pods(client: Client, namespace: str) -> bool:
    return (await client.list(PODS, namespace)).items == []


WAITS = ("Scheduled", "False", "AwaitingScheduler")
STATES: dict[str, tuple[Told, str, tuple[str, str, str], str]] = {
    # what is said, the phase it comes to, the condition that tells, and what that says
    "pending": (wire.Job(id="pending-1"), "Pending", WAITS, "pending-1, says PENDING"),
    "running": (
        wire.Job(id="running-1", status=wire.RUNNING, assigned_node="gpu-3"),
        "Running", ("Scheduled", "True", "Placed"), "running-1, says RUNNING on gpu-3",
    ),
    "completed": (
        wire.Job(id="completed-1", status=wire.COMPLETED, final_score=93.25),
        "Succeeded", ("Complete", "True", "Scored"), "VMAF 93.250",
    ),
    "zero": (wire.Job(id="zero-1", status=wire.COMPLETED), "Succeeded", ("Complete", "True", "Scored"), "VMAF 0.000"),
    "failed": (
        wire.Job(id="failed-1", status=wire.FAILED, error="no such\nclip"),
        "Failed", ("Failed", "True", "ExternalFailure"), "says it failed: no such clip",
    ),
    "cancelled": (
        wire.Job(id="cancelled-1", status=wire.CANCELLED), "Failed", ("Failed", "True", "Cancelled"), "cancelled it",
    ),
    "no-score": (
        wire.Job(id="no-score-1", status=wire.COMPLETED, final_score=math.nan),
        "Failed", ("Failed", "True", "ExternalFailure"), "with nan for a score",
    ),
    "other": (
        wire.Job(id="quite-another", status=wire.COMPLETED, final_score=1.0),
        "Pending", WAITS, "it is about another job, 'quite-another'; asked again",
    ),
    "odd": (
        wire.Job(id="odd-1").SerializeToString() + b"\x10\x11",
        "Pending", WAITS, "its status is 17, which this version does not know",
    ),
    "garbage": (
        b"\xff\xff\xff\xff", "Pending", WAITS, "cannot be used: the reply to GetJob could not be decoded",
    ),
    "empty": (b"", "Pending", WAITS, "it is about another job, ''"),
    "unknown": (
        grpc.StatusCode.NOT_FOUND, "Pending", WAITS, "unknown-1, does not know it",
    ),
    "forbidden": (
        grpc.StatusCode.PERMISSION_DENIED,
        "Pending", WAITS, "PERMISSION_DENIED: so it [31mis; asked again",
    ),
    "huge": (
        wire.Job(id="huge-1", partial_results=[1.0] * 600_000).SerializeToString(),
        "Pending", WAITS, "RESOURCE_EXHAUSTED",
    ),
}  # fmt: skip


async def test_whatever_it_says_is_told_and_nothing_is_run(
    client: Client, namespace: str, elsewhere: Elsewhere
) -> None:
    await add_node(client, namespace, "pool", capacity=100)
    keys = {name: await give(client, namespace, name) for name in STATES}
    elsewhere.jobs |= {f"{name}-1": told for name, (told, *_) in STATES.items()}
    async with follows(client, elsewhere, namespace):
        for name, (_, wanted, (kind, status, reason), message) in STATES.items():

            def holds(job: VmafxJob, *, wanted: str = wanted, kind: str = kind, message: str = message) -> bool:
                return job.status.phase == wanted and message in says(job, kind)

            job = await reaches(client, keys[name], holds, f"{name}: {wanted}, {message}")
            assert condition(job, kind) == (status, reason)
            assert (job.status.controllerJobID, job.status.assignedNode) == (f"{name}-1", None)
            assert (job.status.attempts, job.status.failures) == (0, 0)
    done = {name: await client.get(JOBS, key) for name, key in keys.items()}
    assert (done["completed"].status.score, done["zero"].status.score) == (93.25, 0.0)
    assert done["completed"].status.startedAt is not None
    assert done["completed"].status.finishedAt is not None
    assert done["running"].status.startedAt is not None
    assert done["pending"].status.startedAt is None
    assert done["failed"].status.message == says(done["failed"], "Failed")
    assert await no_pods(client, namespace)


async def test_a_job_goes_its_way_over_there_whoever_watches(
    client: Client, namespace: str, elsewhere: Elsewhere, kubectl: Kubectl
) -> None:
    key = await give(client, namespace, "clip")
    elsewhere.say("clip-1", wire.PENDING)
    async with follows(client, elsewhere, namespace):
        await reaches(client, key, lambda job: "says PENDING" in says(job), "it is asked after")
        elsewhere.say("clip-1", wire.RUNNING, assigned_node="a")
        first = await reaches(client, key, phase("Running"), "it runs")
        elsewhere.say("clip-1", wire.RUNNING, assigned_node="b")
        await reaches(client, key, lambda job: says(job).endswith("on b"), "it runs elsewhere")
    elsewhere.say("clip-1", wire.PENDING)  # put back into its queue there, while no operator looked
    async with follows(client, elsewhere, namespace):
        job = await reaches(client, key, phase("Pending"), "it waits again")
        assert job.status.startedAt == first.status.startedAt  # a deadline runs from the first start
        elsewhere.say("clip-1", wire.RUNNING)
        await reaches(client, key, phase("Running"), "it runs again")
        elsewhere.say("clip-1", wire.COMPLETED, final_score=88.5)
        done = await asyncio.to_thread(kubectl, "wait", "--for=condition=Complete", "--timeout=55s", "vmjob/clip")
        assert done.returncode == 0, done.stderr
    job = await client.get(JOBS, key)
    assert (job.status.score, job.status.startedAt) == (88.5, first.status.startedAt)
    asked = elsewhere.asked["clip-1"]
    async with follows(client, elsewhere, namespace) as running:
        await eventually(running._jobs.synced.is_set, "a new operator knows all there is")
        assert running._following._lines == {}
    assert elsewhere.asked["clip-1"] == asked


async def test_no_job_is_lost_while_the_controller_is_away(
    client: Client, namespace: str, elsewhere: Elsewhere
) -> None:
    await elsewhere.stop()
    waiting = await give(client, namespace, "waiting")
    working = await give(client, namespace, "working", status={"phase": "Running"})
    for key in (waiting, working):
        elsewhere.say(f"{key.name}-1", wire.RUNNING)
    async with follows(client, elsewhere, namespace):
        for key, stays in ((waiting, "Pending"), (working, "Running")):
            job = await reaches(client, key, lambda job: "does not answer; asked again" in says(job), "it says so")
            assert job.status.phase == stays
        await elsewhere.start()
        for key in (waiting, working):
            await reaches(client, key, lambda job: "says RUNNING" in says(job), "it is heard again")
        await elsewhere.stop()
        for key in (waiting, working):
            job = await reaches(client, key, lambda job: "does not answer" in says(job), "it is missed again")
            assert (job.status.phase, condition(job, "Scheduled")) == ("Running", ("True", "Placed"))
        for key in (waiting, working):
            elsewhere.say(f"{key.name}-1", wire.COMPLETED, final_score=70.0)
        await elsewhere.start()
        for key in (waiting, working):
            await reaches(client, key, phase("Succeeded"), "its score comes")
    assert await no_pods(client, namespace)


async def test_cancel(client: Client, namespace: str, elsewhere: Elsewhere) -> None:
    keys = {name: await give(client, namespace, name) for name in ("waits", "runs", "kept", "done", "unknown")}
    elsewhere.say("waits-1", wire.PENDING)
    for name in ("runs", "kept", "done"):
        elsewhere.say(f"{name}-1", wire.RUNNING)
    elsewhere.refusals["kept-1"] = "it is not yours"
    elsewhere.meanwhile["done-1"] = wire.Job(id="done-1", status=wire.COMPLETED, final_score=61.5)
    async with follows(client, elsewhere, namespace):
        for key in keys.values():
            await reaches(client, key, lambda job: bool(job.status.conditions), "it is asked after")
            await client.merge_patch(JOBS, key, {"spec": {"cancel": True}})
        for name in ("waits", "runs", "kept", "unknown"):
            job = await reaches(client, keys[name], phase("Failed"), f"{name} ends")
            assert condition(job, "Failed") == ("True", "Cancelled")
            assert ("will not stop it: it is not yours" in (job.status.message or "")) == (name == "kept")
        job = await reaches(client, keys["done"], phase("Succeeded"), "a result that was there already wins")
        assert job.status.score == 61.5
    assert set(elsewhere.cancelled) == {"done-1", "kept-1", "runs-1", "waits-1"}  # one that refuses may be asked again


async def test_cancel_does_not_wait_for_ever_for_a_controller_that_is_away(
    client: Client, namespace: str, elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "STOP_TIMEOUT", 10.0)  # not over before the first silence is heard
    await elsewhere.stop()
    key = await give(client, namespace, "gone", cancel=True)
    async with follows(client, elsewhere, namespace):
        await reaches(client, key, lambda job: "is to be told and does not answer" in says(job), "it says so")
        job = await reaches(client, key, phase("Failed"), "it ends")
    assert condition(job, "Failed") == ("True", "Cancelled")
    assert "may still work on it" in (job.status.message or "")
    await elsewhere.start()


async def test_suspend_stops_it_there_and_whoever_places_it_next_may(
    client: Client, namespace: str, elsewhere: Elsewhere
) -> None:
    key = await give(client, namespace, "pause")
    elsewhere.say("pause-1", wire.RUNNING)
    async with follows(client, elsewhere, namespace):
        await reaches(client, key, phase("Running"), "it runs")
        await elsewhere.stop()
        await client.merge_patch(JOBS, key, {"spec": {"suspend": True}})
        job = await reaches(client, key, lambda job: "is to stop it and does not" in says(job), "it cannot be told")
        assert condition(job, "Scheduled") == ("False", "Suspending")
        assert job.status.controllerJobID == "pause-1"  # not given up before it is known to be stopped
        await elsewhere.start()
        job = await reaches(client, key, lambda job: job.status.controllerJobID is None, "it is stopped")
        assert (job.status.phase, job.status.assignedNode, job.status.startedAt) == ("Pending", None, None)
        assert condition(job, "Scheduled") == ("False", "Suspended")
        assert elsewhere.cancelled == ["pause-1"]
        await client.merge_patch(JOBS, key, {"spec": {"suspend": False}})
        await reaches(client, key, lambda job: says(job) == "waits for other to place it", "it waits for its scheduler")
        elsewhere.say("pause-2", wire.COMPLETED, final_score=55.0)
        await client.patch_status(JOBS, key, {"controllerJobID": "pause-2"})
        await reaches(client, key, phase("Succeeded"), "it is scored there")


async def test_a_suspension_that_is_refused_says_so_and_the_score_still_comes(
    client: Client, namespace: str, elsewhere: Elsewhere
) -> None:
    key = await give(client, namespace, "kept")
    elsewhere.say("kept-1", wire.RUNNING)
    elsewhere.refusals["kept-1"] = "not while I work"
    async with follows(client, elsewhere, namespace):
        await client.merge_patch(JOBS, key, {"spec": {"suspend": True}})
        job = await reaches(client, key, lambda job: "not while I work" in says(job), "it is refused")
        assert says(job).startswith("cannot be suspended")
        elsewhere.say("kept-1", wire.COMPLETED, final_score=42.0)
        job = await reaches(client, key, phase("Succeeded"), "it is scored all the same")
    assert job.status.score == 42.0


async def test_a_job_resumed_by_another_operator_after_it_was_stopped_is_not_lost(
    client: Client, namespace: str, elsewhere: Elsewhere
) -> None:
    key = await give(client, namespace, "twice")
    elsewhere.say("twice-1", wire.RUNNING)
    elsewhere.refusals["twice-1"] = "in a moment"
    async with follows(client, elsewhere, namespace):
        await client.merge_patch(JOBS, key, {"spec": {"suspend": True}})
        await reaches(client, key, lambda job: "in a moment" in says(job), "the suspension began")
    elsewhere.say("twice-1", wire.CANCELLED)  # which it does after all, while no operator looks
    await client.merge_patch(JOBS, key, {"spec": {"suspend": False}})
    async with follows(client, elsewhere, namespace):
        job = await reaches(client, key, lambda job: job.status.controllerJobID is None, "it is given back")
        assert job.status.phase == "Pending"
        await reaches(client, key, lambda job: says(job) == "waits for other to place it", "it may be placed again")


async def test_a_deadline(client: Client, namespace: str, elsewhere: Elsewhere) -> None:
    key = await give(client, namespace, "late", activeDeadlineSeconds=2)
    elsewhere.say("late-1", wire.RUNNING)
    async with follows(client, elsewhere, namespace):
        job = await reaches(client, key, phase("Failed"), "it ends")
    assert condition(job, "Failed") == ("True", "DeadlineExceeded")
    assert elsewhere.cancelled == ["late-1"]


async def test_a_job_deleted_while_it_is_followed(client: Client, namespace: str, elsewhere: Elsewhere) -> None:
    keys = [await give(client, namespace, name) for name in ("one", "two")]
    for key in keys:
        elsewhere.say(f"{key.name}-1", wire.RUNNING)
    async with follows(client, elsewhere, namespace) as running:
        for key in keys:
            await reaches(client, key, phase("Running"), "it runs")
        await client.delete(JOBS, keys[0])
        (line,) = running._following._lines.values()
        await eventually(lambda: list(line._talks) == [keys[1]], "it is forgotten")
        await client.delete(JOBS, keys[1])
        await eventually(lambda: not running._following._lines, "nothing is left to ask")
        asked = elsewhere.asked.total()
        again = await give(client, namespace, "one", status={"phase": "Running"})  # of the same name, and name there
        elsewhere.say("one-1", wire.COMPLETED, final_score=12.0)
        job = await reaches(client, again, phase("Succeeded"), "another of its name is asked after")
        assert job.status.score == 12.0
        assert elsewhere.asked.total() > asked


async def test_each_namespace_has_its_controller(
    client: Client, namespace: str, elsewhere: Elsewhere, sockets: str
) -> None:
    neighbour = f"{namespace}-too"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": neighbour}})
    async with Elsewhere(sockets.replace("{namespace}", neighbour)) as other:
        elsewhere.say("clip-1", wire.COMPLETED, final_score=1.0)
        other.say("clip-1", wire.COMPLETED, final_score=2.0)
        await other.stop()
        keys = [await give(client, name, "clip") for name in (namespace, neighbour)]
        async with operating(client, "", controllers=sockets):
            job = await reaches(client, keys[0], phase("Succeeded"), "the one that answers is heard")
            assert job.status.score == 1.0
            await other.start()
            job = await reaches(client, keys[1], phase("Succeeded"), "and so is the other")
            assert job.status.score == 2.0


async def test_what_another_controller_has_is_not_placed_here_whatever_its_scheduler_is_called(
    client: Client, namespace: str, elsewhere: Elsewhere
) -> None:
    elsewhere.say("mine-1", wire.PENDING)
    elsewhere.say("both-1", wire.RUNNING)
    mine = await give(client, namespace, "mine", schedulerName="vmafx")
    both = await give(client, namespace, "both", schedulerName="vmafx", status={"assignedNode": "pool"})
    await add_node(client, namespace, "pool", capacity=4)
    async with follows(client, elsewhere, namespace):
        await reaches(client, both, phase("Running"), "one that has a node too runs")
        await reaches(client, mine, lambda job: "says PENDING" in says(job), "it is followed")
        job = await client.get(JOBS, both)
        assert (job.status.assignedNode, job.status.controllerJobID, job.status.attempts) == ("pool", "both-1", 0)
        assert await no_pods(client, namespace)
        await client.patch_status(JOBS, mine, {"controllerJobID": None})  # given back: now it is ours to place
        job = await reaches(client, mine, phase("Running"), "it is placed")
        assert (job.status.assignedNode, job.status.controllerJobID) == ("pool", f"{job.metadata.uid}-0")
        await eventually(lambda: _pods_are(client, namespace, ["mine-0"]), "and has a Pod")


async def test_a_job_taken_out_of_our_queue_leaves_its_place_to_the_next(
    client: Client, namespace: str, elsewhere: Elsewhere
) -> None:
    elsewhere.say("taken-1", wire.RUNNING)
    ours = {"schedulerName": "vmafx", "status": {"controllerJobID": None}}
    taken = await give(client, namespace, "taken", **ours, priority=5)
    stays = await give(client, namespace, "stays", **ours)
    async with follows(client, elsewhere, namespace):
        for key in (taken, stays):
            await reaches(client, key, lambda job: says(job) != "", "it waits for a node")
        await client.patch_status(JOBS, taken, {"phase": "Running", "controllerJobID": "taken-1"})
        await reaches(client, taken, lambda job: "says RUNNING" in says(job), "it is followed")
        await add_node(client, namespace, "pool", capacity=1)
        await reaches(client, stays, phase("Running"), "the other gets the only place")


async def test_what_another_scheduler_lets_run_on_a_node_of_ours_is_run_there(
    client: Client, namespace: str, elsewhere: Elsewhere
) -> None:
    await add_node(client, namespace, "pool")
    placed = {"controllerJobID": None, "phase": "Running", "assignedNode": "pool"}
    key = await give(client, namespace, "clip", status=placed)
    async with follows(client, elsewhere, namespace):
        job = await reaches(client, key, lambda job: job.status.attempts == 1, "it is an attempt of ours")
        assert (job.status.assignedNode, job.status.controllerJobID) == ("pool", f"{job.metadata.uid}-0")
        await eventually(lambda: _pods_are(client, namespace, ["clip-0"]), "and has a Pod")


async def _pods_are(client: Client, namespace: str, names: list[str]) -> bool:
    return [one["metadata"]["name"] for one in (await client.list(PODS, namespace)).items] == names


async def test_the_operator_itself_pays_for_grpc_when_it_first_needs_it(
    cluster: DevCluster, client: Client, namespace: str, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    elsewhere.say("clip-1", wire.COMPLETED, final_score=77.0)
    await elsewhere.stop()
    variables = {"VMAFX_CONTROLLER_GRPC_ADDR": elsewhere.address}
    with operator(cluster, namespace, tmp_path, **variables) as process:
        maps = Path(f"/proc/{process.process.pid}/maps")
        ours = VmafxJobSpec("file:///r.mkv", "file:///d.mkv")
        await client.create(JOBS, VmafxJob(metadata=ObjectMeta(name="ours"), spec=ours), namespace)
        await reaches(
            client, ObjectKey(namespace, "ours"), lambda job: bool(job.status.conditions), "one of ours is seen"
        )
        assert "cygrpc" not in maps.read_text()
        key = await give(client, namespace, "clip")
        await reaches(client, key, lambda job: "does not answer" in says(job), "its controller is missed")
        assert "cygrpc" in maps.read_text()
        await elsewhere.start()
        job = await reaches(client, key, phase("Succeeded"), "it is followed")
        assert job.status.score == 77.0
    assert process.process.returncode == 0
    texts = [str(line["msg"]) for line in process.log()]
    assert len(texts) == len(process._log.read_text().splitlines())  # nothing but our own, and in our own way
    assert [text for text in texts if "another controller" in text] == [
        "another controller does not answer; it is asked again until it does",
        "another controller answers again",
    ]
