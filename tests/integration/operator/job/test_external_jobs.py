"""External jobs, on a real API server, with a real gRPC server that plays their controller."""

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
from tests.support.fleet import add_node, condition, operating, phase, reaches
from tests.support.foreign_controller import ForeignController, JobReply
from tests.support.operator_process import operator
from tests.support.waiting import eventually
from vmafx.api.job import VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.backoff import Backoff
from vmafx.devcluster import DevCluster
from vmafx.kube import JOBS, NAMESPACES, Client, ObjectKey
from vmafx.kube.core import PODS
from vmafx.operator.job.external import decide as external_decide
from vmafx.operator.job.external import poller
from vmafx.operator.job.reconciler import JobReconciler
from vmafx.wire import controller_pb2 as wire


@pytest.fixture(autouse=True)
def poll_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll more often; unit tests check the intervals."""
    monkeypatch.setattr(poller, "BACKOFF", Backoff(0.2, 1.0, spread=0))


@pytest.fixture
def sockets() -> Iterator[str]:
    """The address of controllers, one socket per namespace. In /tmp, because the path of a socket must be short."""
    with tempfile.TemporaryDirectory() as folder:
        yield f"unix:{folder}/{{namespace}}"


@pytest.fixture
async def elsewhere(sockets: str, namespace: str) -> AsyncIterator[ForeignController]:
    async with ForeignController(sockets.replace("{namespace}", namespace)) as controller:
        yield controller


@asynccontextmanager
async def mirroring(client: Client, elsewhere: ForeignController, namespace: str) -> AsyncIterator[JobReconciler]:
    async with operating(client, namespace, external_controller=elsewhere.address) as running:
        yield running


async def submit_external(client: Client, namespace: str, name: str, *, status: Any = None, **spec: Any) -> ObjectKey:
    """A job that another scheduler submitted to its controller, with the id NAME-1."""
    wanted = VmafxJobSpec("file:///r.mkv", "file:///d.mkv", **{"schedulerName": "other", **spec})
    await client.create(JOBS, VmafxJob(metadata=ObjectMeta(name=name), spec=wanted), namespace)
    key = ObjectKey(namespace, name)
    await client.patch_status(JOBS, key, {"controllerJobID": f"{name}-1", **(status or {})})
    return key


def message_of(job: VmafxJob, kind: str = "Scheduled") -> str:
    return next((one.message for one in job.status.conditions if one.type == kind), "")


async def no_pods(client: Client, namespace: str) -> bool:
    return (await client.list(PODS, namespace)).items == []


WAITS = ("Scheduled", "False", "AwaitingScheduler")
STATES: dict[str, tuple[JobReply, str, tuple[str, str, str], str]] = {
    # the reply, the resulting phase, its condition, and part of the message
    "pending": (wire.Job(id="pending-1"), "Pending", WAITS, "reports job pending-1 as PENDING"),
    "running": (
        wire.Job(id="running-1", status=wire.RUNNING, assigned_node="gpu-3"),
        "Running", ("Scheduled", "True", "Placed"), "reports job running-1 as RUNNING on gpu-3",
    ),
    "completed": (
        wire.Job(id="completed-1", status=wire.COMPLETED, final_score=93.25),
        "Succeeded", ("Complete", "True", "Scored"), "VMAF 93.250",
    ),
    "zero": (wire.Job(id="zero-1", status=wire.COMPLETED), "Succeeded", ("Complete", "True", "Scored"), "VMAF 0.000"),
    "failed": (
        wire.Job(id="failed-1", status=wire.FAILED, error="no such\nclip"),
        "Failed", ("Failed", "True", "ExternalFailure"), "reports that it failed: no such clip",
    ),
    "cancelled": (
        wire.Job(id="cancelled-1", status=wire.CANCELLED), "Failed", ("Failed", "True", "Cancelled"), "cancelled it",
    ),
    "no-score": (
        wire.Job(id="no-score-1", status=wire.COMPLETED, final_score=math.nan),
        "Failed", ("Failed", "True", "ExternalFailure"), "a score of nan",
    ),
    "other": (
        wire.Job(id="quite-another", status=wire.COMPLETED, final_score=1.0),
        "Pending", WAITS, "it is about another job, 'quite-another'; retrying",
    ),
    "odd": (
        wire.Job(id="odd-1").SerializeToString() + b"\x10\x11",
        "Pending", WAITS, "its status 17 is unknown to this version",
    ),
    "garbage": (
        b"\xff\xff\xff\xff",
        "Pending", WAITS, "an invalid reply about job garbage-1: the reply to GetJob could not be decoded",
    ),
    "empty": (b"", "Pending", WAITS, "it is about another job, ''"),
    "unknown": (
        grpc.StatusCode.NOT_FOUND, "Pending", WAITS, "does not know job unknown-1",
    ),
    "forbidden": (
        grpc.StatusCode.PERMISSION_DENIED,
        "Pending", WAITS, "PERMISSION_DENIED: so it [31mis; retrying",
    ),
    "huge": (
        wire.Job(id="huge-1", partial_results=[1.0] * 600_000).SerializeToString(),
        "Pending", WAITS, "RESOURCE_EXHAUSTED",
    ),
}  # fmt: skip


async def test_each_reply_is_mirrored_and_no_pod_is_created(
    client: Client, namespace: str, elsewhere: ForeignController
) -> None:
    await add_node(client, namespace, "pool", capacity=100)
    keys = {name: await submit_external(client, namespace, name) for name in STATES}
    elsewhere.jobs |= {f"{name}-1": reply for name, (reply, *_) in STATES.items()}
    async with mirroring(client, elsewhere, namespace):
        for name, (_, wanted, (kind, status, reason), message) in STATES.items():

            def holds(job: VmafxJob, *, wanted: str = wanted, kind: str = kind, message: str = message) -> bool:
                return job.status.phase == wanted and message in message_of(job, kind)

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
    assert done["failed"].status.message == message_of(done["failed"], "Failed")
    assert await no_pods(client, namespace)


async def test_an_external_job_is_followed_to_its_score_across_restarts(
    client: Client, namespace: str, elsewhere: ForeignController, kubectl: Kubectl
) -> None:
    key = await submit_external(client, namespace, "clip")
    elsewhere.say("clip-1", wire.PENDING)
    async with mirroring(client, elsewhere, namespace):
        await reaches(client, key, lambda job: "as PENDING" in message_of(job), "it is polled")
        elsewhere.say("clip-1", wire.RUNNING, assigned_node="a")
        first = await reaches(client, key, phase("Running"), "it runs")
        elsewhere.say("clip-1", wire.RUNNING, assigned_node="b")
        await reaches(client, key, lambda job: message_of(job).endswith("on b"), "it runs elsewhere")
    elsewhere.say("clip-1", wire.PENDING)  # back in its queue there, while no operator ran
    async with mirroring(client, elsewhere, namespace):
        job = await reaches(client, key, phase("Pending"), "it waits again")
        assert job.status.startedAt == first.status.startedAt  # a deadline runs from the first start
        elsewhere.say("clip-1", wire.RUNNING)
        await reaches(client, key, phase("Running"), "it runs again")
        elsewhere.say("clip-1", wire.COMPLETED, final_score=88.5)
        done = await asyncio.to_thread(kubectl, "wait", "--for=condition=Complete", "--timeout=55s", "vmjob/clip")
        assert done.returncode == 0, done.stderr
    job = await client.get(JOBS, key)
    assert (job.status.score, job.status.startedAt) == (88.5, first.status.startedAt)
    asked = elsewhere.requests["clip-1"]
    async with mirroring(client, elsewhere, namespace) as running:
        await eventually(running._jobs.synced.is_set, "the caches of a new operator are synced")
        assert running._external._pollers == {}
    assert elsewhere.requests["clip-1"] == asked


async def test_no_job_is_lost_while_its_controller_is_down(
    client: Client, namespace: str, elsewhere: ForeignController
) -> None:
    await elsewhere.stop()
    waiting = await submit_external(client, namespace, "waiting")
    working = await submit_external(client, namespace, "working", status={"phase": "Running"})
    for key in (waiting, working):
        elsewhere.say(f"{key.name}-1", wire.RUNNING)
    async with mirroring(client, elsewhere, namespace):
        for key, stays in ((waiting, "Pending"), (working, "Running")):
            job = await reaches(
                client, key, lambda job: "does not answer about job" in message_of(job), "its message says so"
            )
            assert job.status.phase == stays
        await elsewhere.start()
        for key in (waiting, working):
            await reaches(client, key, lambda job: "as RUNNING" in message_of(job), "its controller answers again")
        await elsewhere.stop()
        for key in (waiting, working):
            job = await reaches(
                client, key, lambda job: "does not answer" in message_of(job), "its controller is down again"
            )
            assert (job.status.phase, condition(job, "Scheduled")) == ("Running", ("True", "Placed"))
        for key in (waiting, working):
            elsewhere.say(f"{key.name}-1", wire.COMPLETED, final_score=70.0)
        await elsewhere.start()
        for key in (waiting, working):
            await reaches(client, key, phase("Succeeded"), "its score comes")
    assert await no_pods(client, namespace)


async def test_a_cancelled_job_is_stopped_at_its_controller(
    client: Client, namespace: str, elsewhere: ForeignController
) -> None:
    keys = {
        name: await submit_external(client, namespace, name) for name in ("waits", "runs", "kept", "done", "unknown")
    }
    elsewhere.say("waits-1", wire.PENDING)
    for name in ("runs", "kept", "done"):
        elsewhere.say(f"{name}-1", wire.RUNNING)
    elsewhere.refusals["kept-1"] = "it is not yours"
    elsewhere.meanwhile["done-1"] = wire.Job(id="done-1", status=wire.COMPLETED, final_score=61.5)
    async with mirroring(client, elsewhere, namespace):
        for key in keys.values():
            await reaches(client, key, lambda job: bool(job.status.conditions), "it is polled")
            await client.merge_patch(JOBS, key, {"spec": {"cancel": True}})
        for name in ("waits", "runs", "kept", "unknown"):
            job = await reaches(client, keys[name], phase("Failed"), f"{name} ends")
            assert condition(job, "Failed") == ("True", "Cancelled")
            assert ("refused to stop it: it is not yours" in (job.status.message or "")) == (name == "kept")
        job = await reaches(client, keys["done"], phase("Succeeded"), "an existing result takes precedence")
        assert job.status.score == 61.5
    assert set(elsewhere.cancelled) == {"done-1", "kept-1", "runs-1", "waits-1"}  # a refusal may be retried


async def test_a_cancelled_job_ends_even_if_its_controller_stays_down(
    client: Client, namespace: str, elsewhere: ForeignController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_decide, "STOP_TIMEOUT", 10.0)  # longer than the first poll takes to fail
    await elsewhere.stop()
    key = await submit_external(client, namespace, "late", cancel=True)
    async with mirroring(client, elsewhere, namespace):
        await reaches(
            client, key, lambda job: "to stop it; it does not answer" in message_of(job), "its message says so"
        )
        job = await reaches(client, key, phase("Failed"), "it ends")
    assert condition(job, "Failed") == ("True", "Cancelled")
    assert "may still be running it" in (job.status.message or "")
    await elsewhere.start()


async def test_a_suspended_job_is_stopped_at_its_controller_and_can_be_placed_again(
    client: Client, namespace: str, elsewhere: ForeignController
) -> None:
    key = await submit_external(client, namespace, "pause")
    elsewhere.say("pause-1", wire.RUNNING)
    async with mirroring(client, elsewhere, namespace):
        await reaches(client, key, phase("Running"), "it runs")
        await elsewhere.stop()
        await client.merge_patch(JOBS, key, {"spec": {"suspend": True}})
        job = await reaches(
            client, key, lambda job: "to stop it; it does not answer" in message_of(job), "its controller is down"
        )
        assert condition(job, "Scheduled") == ("False", "Suspending")
        assert job.status.controllerJobID == "pause-1"  # kept until the stop is confirmed
        await elsewhere.start()
        job = await reaches(client, key, lambda job: job.status.controllerJobID is None, "it is stopped")
        assert (job.status.phase, job.status.assignedNode, job.status.startedAt) == ("Pending", None, None)
        assert condition(job, "Scheduled") == ("False", "Suspended")
        assert elsewhere.cancelled == ["pause-1"]
        await client.merge_patch(JOBS, key, {"spec": {"suspend": False}})
        await reaches(
            client,
            key,
            lambda job: message_of(job) == "waiting for scheduler other to place it",
            "it waits for its scheduler",
        )
        elsewhere.say("pause-2", wire.COMPLETED, final_score=55.0)
        await client.patch_status(JOBS, key, {"controllerJobID": "pause-2"})
        await reaches(client, key, phase("Succeeded"), "it is scored there")


async def test_a_job_whose_suspension_is_refused_says_so_and_is_still_scored(
    client: Client, namespace: str, elsewhere: ForeignController
) -> None:
    key = await submit_external(client, namespace, "kept")
    elsewhere.say("kept-1", wire.RUNNING)
    elsewhere.refusals["kept-1"] = "not while I work"
    async with mirroring(client, elsewhere, namespace):
        await client.merge_patch(JOBS, key, {"spec": {"suspend": True}})
        job = await reaches(client, key, lambda job: "not while I work" in message_of(job), "it is refused")
        assert message_of(job).startswith("cannot be suspended")
        elsewhere.say("kept-1", wire.COMPLETED, final_score=42.0)
        job = await reaches(client, key, phase("Succeeded"), "it is scored")
    assert job.status.score == 42.0


async def test_a_job_stopped_and_resumed_while_no_operator_ran_is_queued_again(
    client: Client, namespace: str, elsewhere: ForeignController
) -> None:
    key = await submit_external(client, namespace, "twice")
    elsewhere.say("twice-1", wire.RUNNING)
    elsewhere.refusals["twice-1"] = "in a moment"
    async with mirroring(client, elsewhere, namespace):
        await client.merge_patch(JOBS, key, {"spec": {"suspend": True}})
        await reaches(client, key, lambda job: "in a moment" in message_of(job), "the suspension began")
    elsewhere.say("twice-1", wire.CANCELLED)  # it stops later, while no operator runs
    await client.merge_patch(JOBS, key, {"spec": {"suspend": False}})
    async with mirroring(client, elsewhere, namespace):
        job = await reaches(client, key, lambda job: job.status.controllerJobID is None, "it is suspended")
        assert job.status.phase == "Pending"
        await reaches(
            client,
            key,
            lambda job: message_of(job) == "waiting for scheduler other to place it",
            "it may be placed again",
        )


async def test_the_deadline_stops_an_external_job(client: Client, namespace: str, elsewhere: ForeignController) -> None:
    key = await submit_external(client, namespace, "late", activeDeadlineSeconds=2)
    elsewhere.say("late-1", wire.RUNNING)
    async with mirroring(client, elsewhere, namespace):
        job = await reaches(client, key, phase("Failed"), "it ends")
    assert condition(job, "Failed") == ("True", "DeadlineExceeded")
    assert elsewhere.cancelled == ["late-1"]


async def test_a_deleted_job_is_no_longer_polled(client: Client, namespace: str, elsewhere: ForeignController) -> None:
    keys = [await submit_external(client, namespace, name) for name in ("one", "two")]
    for key in keys:
        elsewhere.say(f"{key.name}-1", wire.RUNNING)
    async with mirroring(client, elsewhere, namespace) as running:
        for key in keys:
            await reaches(client, key, phase("Running"), "it runs")
        await client.delete(JOBS, keys[0])
        (controller_poller,) = running._external._pollers.values()
        await eventually(lambda: list(controller_poller._jobs) == [keys[1]], "it is no longer polled")
        await client.delete(JOBS, keys[1])
        await eventually(lambda: not running._external._pollers, "no controller is polled")
        asked = elsewhere.requests.total()
        again = await submit_external(
            client, namespace, "one", status={"phase": "Running"}
        )  # with the same name and id
        elsewhere.say("one-1", wire.COMPLETED, final_score=12.0)
        job = await reaches(client, again, phase("Succeeded"), "the new job is polled")
        assert job.status.score == 12.0
        assert elsewhere.requests.total() > asked


async def test_each_namespace_has_its_own_controller(
    client: Client, namespace: str, elsewhere: ForeignController, sockets: str
) -> None:
    neighbour = f"{namespace}-too"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": neighbour}})
    async with ForeignController(sockets.replace("{namespace}", neighbour)) as other:
        elsewhere.say("clip-1", wire.COMPLETED, final_score=1.0)
        other.say("clip-1", wire.COMPLETED, final_score=2.0)
        await other.stop()
        keys = [await submit_external(client, name, "clip") for name in (namespace, neighbour)]
        async with operating(client, "", external_controller=sockets):
            job = await reaches(client, keys[0], phase("Succeeded"), "the controller that answers is polled")
            assert job.status.score == 1.0
            await other.start()
            job = await reaches(client, keys[1], phase("Succeeded"), "and then the other")
            assert job.status.score == 2.0


async def test_an_external_job_is_not_placed_whatever_its_scheduler_name(
    client: Client, namespace: str, elsewhere: ForeignController
) -> None:
    elsewhere.say("mine-1", wire.PENDING)
    elsewhere.say("both-1", wire.RUNNING)
    mine = await submit_external(client, namespace, "mine", schedulerName="vmafx")
    both = await submit_external(client, namespace, "both", schedulerName="vmafx", status={"assignedNode": "pool"})
    await add_node(client, namespace, "pool", capacity=4)
    async with mirroring(client, elsewhere, namespace):
        await reaches(client, both, phase("Running"), "the one with a node is mirrored as Running")
        await reaches(client, mine, lambda job: "as PENDING" in message_of(job), "it is mirrored")
        job = await client.get(JOBS, both)
        assert (job.status.assignedNode, job.status.controllerJobID, job.status.attempts) == ("pool", "both-1", 0)
        assert await no_pods(client, namespace)
        await client.patch_status(JOBS, mine, {"controllerJobID": None})  # no longer external
        job = await reaches(client, mine, phase("Running"), "it is placed")
        assert (job.status.assignedNode, job.status.controllerJobID) == ("pool", f"{job.metadata.uid}-0")
        await eventually(lambda: _pods_are(client, namespace, ["mine-0"]), "it has a Pod")


async def test_a_queued_job_that_becomes_external_leaves_the_slot_to_the_next(
    client: Client, namespace: str, elsewhere: ForeignController
) -> None:
    elsewhere.say("taken-1", wire.RUNNING)
    not_external: dict[str, Any] = {"schedulerName": "vmafx", "status": {"controllerJobID": None}}
    taken = await submit_external(client, namespace, "taken", **not_external, priority=5)
    stays = await submit_external(client, namespace, "stays", **not_external)
    async with mirroring(client, elsewhere, namespace):
        for key in (taken, stays):
            await reaches(client, key, lambda job: message_of(job) != "", "it waits for a node")
        await client.patch_status(JOBS, taken, {"phase": "Running", "controllerJobID": "taken-1"})
        await reaches(client, taken, lambda job: "as RUNNING" in message_of(job), "it is mirrored")
        await add_node(client, namespace, "pool", capacity=1)
        await reaches(client, stays, phase("Running"), "the other gets the only slot")


async def test_a_job_set_to_running_on_a_node_by_another_scheduler_is_run_there(
    client: Client, namespace: str, elsewhere: ForeignController
) -> None:
    await add_node(client, namespace, "pool")
    placed = {"controllerJobID": None, "phase": "Running", "assignedNode": "pool"}
    key = await submit_external(client, namespace, "clip", status=placed)
    async with mirroring(client, elsewhere, namespace):
        job = await reaches(client, key, lambda job: job.status.attempts == 1, "the operator started an attempt")
        assert (job.status.assignedNode, job.status.controllerJobID) == ("pool", f"{job.metadata.uid}-0")
        await eventually(lambda: _pods_are(client, namespace, ["clip-0"]), "it has a Pod")


async def _pods_are(client: Client, namespace: str, names: list[str]) -> bool:
    return [one["metadata"]["name"] for one in (await client.list(PODS, namespace)).items] == names


async def test_the_operator_imports_grpc_when_the_first_external_job_appears(
    cluster: DevCluster, client: Client, namespace: str, elsewhere: ForeignController, tmp_path: Path
) -> None:
    elsewhere.say("clip-1", wire.COMPLETED, final_score=77.0)
    await elsewhere.stop()
    variables = {"VMAFX_CONTROLLER_GRPC_ADDR": elsewhere.address}
    with operator(cluster, namespace, tmp_path, **variables) as process:
        maps = Path(f"/proc/{process.process.pid}/maps")
        spec = VmafxJobSpec("file:///r.mkv", "file:///d.mkv")
        await client.create(JOBS, VmafxJob(metadata=ObjectMeta(name="internal"), spec=spec), namespace)
        await reaches(
            client, ObjectKey(namespace, "internal"), lambda job: bool(job.status.conditions), "the job is reconciled"
        )
        assert "cygrpc" not in maps.read_text()
        key = await submit_external(client, namespace, "clip")
        await reaches(client, key, lambda job: "does not answer" in message_of(job), "its controller is down")
        assert "cygrpc" in maps.read_text()
        await elsewhere.start()
        job = await reaches(client, key, phase("Succeeded"), "it is mirrored")
        assert job.status.score == 77.0
    assert process.process.returncode == 0
    texts = [str(line["msg"]) for line in process.log()]
    assert len(texts) == len(process._log.read_text().splitlines())  # no lines by grpc itself
    assert [text for text in texts if "external controller" in text] == [
        "external controller does not answer, retrying",
        "external controller answers again",
    ]
