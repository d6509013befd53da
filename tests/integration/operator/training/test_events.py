"""Events about trainings, and the human scores that their trainers get."""

from datetime import timedelta
from typing import Any

import pytest

from tests.conftest import Kubectl
from tests.support.scripted_trainer import DIGEST, ScriptedTrainers, checkpoint, running
from tests.support.serving_kubelet import ServingKubelet
from tests.support.trainings import Trainings, reconciling_trainings
from tests.support.waiting import eventually
from vmafx.api.job import LABELLED, VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.api.node import VmafxNode, VmafxNodeSpec
from vmafx.clock import utc_now
from vmafx.jobs.sample_keys import SampleKeys
from vmafx.jobs.sample_token import TrainerClaims, verify
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.operator.training.trainers import TrainerClient
from vmafx.training.samples import HumanScore


async def test_every_checkpoint_has_an_event_of_its_own(
    trainings: Trainings, trainers: ScriptedTrainers, kubectl: Kubectl
) -> None:
    trainers.answers["t"] = running(checkpoints=(checkpoint(1),))
    await trainings.create()
    await trainings.until_event("Checkpoint")
    trainers.answers["t"] = running(checkpoints=tuple(checkpoint(number) for number in (1, 2, 3)))

    async def all_there() -> bool:
        return len([one for one in await trainings.events() if one[1] == "Checkpoint"]) == 3

    await eventually(all_there, "three events")
    notes = [note for kind, reason, note in await trainings.events() if (kind, reason) == ("Normal", "Checkpoint")]
    assert notes[0] == f"version 1, {DIGEST}1, after 1,000 samples, loss 10, Pearson 0.9, Spearman 0.8"
    assert [note.split(",")[0] for note in notes] == ["version 1", "version 2", "version 3"]
    shown = kubectl("describe", "vmtrain", "t").stdout
    assert "Normal  Checkpoint" in shown
    assert "version 3" in shown


async def test_events_are_not_repeated_after_a_restart(
    client: Client, namespace: str, trainers: ScriptedTrainers, kubelet: ServingKubelet
) -> None:
    trainings = Trainings(client, namespace)
    trainers.answers["t"] = running(
        checkpoints=(checkpoint(1),), excluded_nodes={"n": "garbage"}, damaged=2, stale=True
    )
    async with kubelet:
        async with reconciling_trainings(client, namespace, trainers.address):
            await trainings.create()
            for reason in ("Checkpoint", "NodeExcluded", "DamagedData", "Stale", "Training"):
                await trainings.until_event(reason)
        before = await trainings.events()
        trainers.answers["t"] = running(checkpoints=(checkpoint(1),), excluded_nodes={"n": "garbage"}, damaged=3)
        async with reconciling_trainings(client, namespace, trainers.address):
            await trainings.until("Stale", "False")

            async def reported() -> bool:
                return len(await trainings.events()) > len(before)

            await eventually(reported, "the damage since then is reported")
    after = await trainings.events()
    assert after[: len(before)] == before
    note = "skipped 1 damaged records or checkpoints on the volume, 3 so far"
    assert after[len(before) :] == [("Warning", "DamagedData", note)]


async def test_versions_of_an_earlier_training_cause_no_events(
    trainings: Trainings, trainers: ScriptedTrainers
) -> None:
    behind = utc_now() - timedelta(hours=5)  # by the clock of the trainer
    versions = (checkpoint(1, time=behind), checkpoint(2, time=behind))
    trainers.answers["t"] = running(checkpoints=versions, inherited=1)
    await trainings.create()
    assert (await trainings.until_event("Checkpoint")).startswith("version 2,")
    assert [one for one in await trainings.events() if "version 1" in one[2]] == []


async def test_a_divergence_and_a_failure_are_warnings(trainings: Trainings, trainers: ScriptedTrainers) -> None:
    trainers.answers["t"] = running(diverged="the loss rose for 3 windows")
    await trainings.create()
    assert await trainings.until_event("Diverged") == "the loss rose for 3 windows"
    trainers.answers["t"] = running(phase="Failed", message="the disk is full")
    assert await trainings.until_event("TrainerFailed") == "the disk is full"
    assert {kind for kind, reason, _ in await trainings.events() if reason != "Training"} == {"Warning"}


async def test_a_full_disk_is_a_warning(trainings: Trainings, trainers: ScriptedTrainers) -> None:
    full = "cannot write a checkpoint: No space left on device"
    trainers.answers["t"] = running(message=full, degraded=full)
    await trainings.create()
    assert await trainings.until_event("Degraded") == full
    assert await trainings.until("Ready") == full


async def labelled_job(client: Client, namespace: str, name: str, node: str, score: float | None) -> str:
    """Create a job that ran on a node; return its uid."""
    spec = VmafxJobSpec("file:///r.mp4", "file:///d.mp4", humanScore=score)
    job = await client.create(JOBS, VmafxJob(metadata=ObjectMeta(name=name, labels=LABELLED), spec=spec), namespace)
    await client.patch_status(JOBS, ObjectKey(namespace, name), {"phase": "Succeeded", "assignedNode": node})
    return job.metadata.uid


async def test_trainers_get_the_human_scores_of_their_nodes(
    client: Client, namespace: str, trainings: Trainings, trainers: ScriptedTrainers
) -> None:
    for rack in ("a", "b"):
        meta = ObjectMeta(name=f"node-{rack}", labels={"rack": rack})
        await client.create(NODES, VmafxNode(metadata=meta, spec=VmafxNodeSpec("cpu")), namespace)
    trainers.answers |= {"all": running(), "rack-a": running()}
    trainers.labels_status = 503
    await trainings.create("all")
    await trainings.create("rack-a", dataSource={"nodeSelector": {"rack": "a"}})
    on_a = await labelled_job(client, namespace, "on-a", "node-a", 70.5)
    on_b = await labelled_job(client, namespace, "on-b", "node-b", 0)
    await labelled_job(client, namespace, "unscored", "node-a", None)
    reads = dict(trainers.reads)
    await eventually(lambda: trainers.reads.get("all", 0) > reads.get("all", 0) + 1, "the trainer was read again")
    trainers.labels_status = 204  # what was refused is sent again
    await eventually(lambda: len(trainers.labels.get("all", ())) == 2, "all scores of the first")
    await eventually(lambda: trainers.labels.get("rack-a"), "the scores of the second")
    assert set(trainers.labels["all"]) == {HumanScore(on_a, 70.5), HumanScore(on_b, 0.0)}
    assert trainers.labels["rack-a"] == [HumanScore(on_a, 70.5)]
    key = await SampleKeys(client).get(namespace)
    assert key is not None
    assert len(key.decode()) == 64  # text, which a trainer has as a variable
    claims = verify(key, trainers.tokens["rack-a"], TrainerClaims)
    assert claims == TrainerClaims(f"trainer/{namespace}/rack-a")
    await client.merge_patch(JOBS, ObjectKey(namespace, "on-a"), {"spec": {"humanScore": 60.0}})
    await eventually(lambda: HumanScore(on_a, 60.0) in trainers.labels["rack-a"], "a changed score")
    assert HumanScore(on_b, 0.0) not in trainers.labels["rack-a"]


async def test_an_unexpected_error_does_not_stop_the_delivery_of_human_scores(
    client: Client,
    namespace: str,
    trainings: Trainings,
    trainers: ScriptedTrainers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    post, errors = TrainerClient.post, [RecursionError("too deep")]

    async def fail_once(*arguments: Any) -> None:
        if errors:
            raise errors.pop()
        await post(*arguments)

    monkeypatch.setattr(TrainerClient, "post", fail_once)
    trainers.answers["t"] = running()
    await trainings.create()
    await trainings.until("Ready")
    uid = await labelled_job(client, namespace, "job", "node", 50)
    await eventually(lambda: trainers.labels.get("t"), "the score is delivered")
    assert (trainers.labels["t"], errors) == ([HumanScore(uid, 50.0)], [])
