"""Every condition and reason of a training, reached on a real API server and read with kubectl."""

import json
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from tests.conftest import Kubectl
from tests.support.scripted_trainer import ScriptedTrainers, checkpoint, running
from tests.support.serving_kubelet import ServingKubelet
from tests.support.trainings import Trainings, training_fleet
from vmafx.clock import utc_now
from vmafx.kube import Client, Resource
from vmafx.kube.core import SERVICES
from vmafx.kube.resources import UntypedObject
from vmafx.operator.training.kind import TRAINING
from vmafx.training.status import TrainerStatus

QUOTAS: Resource[UntypedObject] = Resource("", "v1", "resourcequotas", "ResourceQuota", dict)
REGISTRY = "registry.example.com/models/vmaf"
Preparation = Callable[[Client, str], Awaitable[object]]


async def no_pods(client: Client, namespace: str) -> None:
    await client.create(QUOTAS, {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}, namespace)


async def no_services(client: Client, namespace: str) -> None:
    await client.create(QUOTAS, {"metadata": {"name": "none"}, "spec": {"hard": {"services": "0"}}}, namespace)


async def foreign_service(client: Client, namespace: str) -> None:
    spec = {"ports": [{"port": 80}], "selector": {"app": "other"}}
    await client.create(SERVICES, {"metadata": {"name": "vmafx-trainer-t"}, "spec": spec}, namespace)


async def nothing(_client: Client, _namespace: str) -> None:
    pass


class Scenario(NamedTuple):
    """What the trainer answers and the cluster has, and the phase that follows."""

    phase: str
    message: str
    answer: TrainerStatus | bytes | int = 503
    spec: dict[str, Any] = {}
    prepare: Preparation = nothing
    settings: dict[str, Any] = {}


RUNNING = running()
FULL = "cannot store samples: No space left on device"
FAILED = TrainerStatus(phase="Failed", message="the base model is not a model")
SCENARIOS = {
    ("Ready", "True", "Training"): Scenario("Running", "learns from the samples", RUNNING),
    ("Ready", "False", "Paused"): Scenario("Paused", "paused", TrainerStatus(phase="Paused"), {"paused": True}),
    ("Ready", "False", "Starting"): Scenario("Initializing", "", TrainerStatus(phase="Initializing")),
    ("Ready", "False", "TrainerUnreachable"): Scenario("Initializing", "/status returned 503"),
    ("Ready", "False", "TrainerFailed"): Scenario("Failed", "the base model is not a model", FAILED),
    ("Ready", "False", "RolloutStuck"): Scenario("Failed", "exceeded quota", prepare=no_pods),
    ("Ready", "False", "NameTaken"): Scenario("Failed", "Service vmafx-trainer-t already", prepare=foreign_service),
    ("Ready", "False", "Refused"): Scenario("Failed", "exceeded quota", prepare=no_services),
    ("Ready", "False", "NoImage"): Scenario("Failed", "VMAFX_TRAINER_IMAGE", settings={"worker_image": ""}),
    ("Stale", "True", "NoNewSamples"): Scenario("Running", "no new samples since", running(stale=True)),
    ("Stale", "False", "SamplesArriving"): Scenario("Running", "new samples arrive", RUNNING),
    ("Stale", "False", "NoSamplesYet"): Scenario("Running", "", running(samples=0, last_sample=None)),
    ("Diverged", "True", "RolledBack"): Scenario("Running", "loss is NaN", running(diverged="loss is NaN")),
    ("Diverged", "False", "AsExpected"): Scenario("Running", "the loss does not rise", RUNNING),
    ("Published", "True", "Pushed"): Scenario(
        "Running", REGISTRY, running(checkpoints=(checkpoint(1),)), {"outputRegistry": REGISTRY}
    ),
    ("Published", "False", "Pushing"): Scenario(
        "Running", REGISTRY, running(checkpoints=(checkpoint(1, pushed=False),)), {"outputRegistry": REGISTRY}
    ),
    ("Published", "False", "PushFailed"): Scenario(
        "Running",
        "connection refused",
        running(checkpoints=(checkpoint(1, pushed=False),), publish_error="connection refused"),
        {"outputRegistry": REGISTRY},
    ),
    ("Published", "False", "NoCheckpoint"): Scenario("Running", "no version", RUNNING, {"outputRegistry": REGISTRY}),
    ("Published", "False", "NoRegistry"): Scenario("Running", "stay on the volume", RUNNING),
    ("Degraded", "True", "StorageProblem"): Scenario("Running", FULL, running(message=FULL, degraded=FULL)),
    ("Degraded", "False", "AsExpected"): Scenario("Running", "can be stored", RUNNING),
}


def test_every_declared_reason_has_a_scenario() -> None:
    assert set(SCENARIOS) == {(one.condition, one.status, one.reason) for one in TRAINING.reasons}


@pytest.mark.parametrize("wanted", SCENARIOS, ids="-".join)
async def test_a_reason_is_reached(
    client: Client,
    namespace: str,
    trainers: ScriptedTrainers,
    kubelet: ServingKubelet,
    kubectl: Kubectl,
    wanted: tuple[str, str, str],
) -> None:
    scenario = SCENARIOS[wanted]
    trainers.answers["t"] = scenario.answer
    await scenario.prepare(client, namespace)
    async with training_fleet(client, namespace, kubelet, trainers.address, **scenario.settings) as trainings:
        await trainings.create(**scenario.spec)
        assert scenario.message in await trainings.until(*wanted)
        await trainings.until_phase(scenario.phase)
        shown = json.loads(kubectl("get", "vmtrain", "t", "-o", "json").stdout)["status"]
        assert shown["phase"] == scenario.phase
        assert kubectl("get", "vmtrain", "t", "--no-headers").stdout.split()[1] == scenario.phase
        ready = next(one for one in shown["conditions"] if one["type"] == "Ready")
        assert shown["message"] == ready["message"]


HOSTILE = {
    "no JSON": b"<html>",
    "a list": b"[]",
    "lists in lists": b'{"x": ' + b"[" * 100_000,
    "an unknown phase": b'{"phase": "Dancing"}',
    "a negative number": b'{"phase": "Running", "samples": -1}',
    "a number that is too large": b'{"phase": "Running", "quality": {"loss": 1e999}}',
    "a time without a zone": b'{"phase": "Running", "last_sample": "2026-01-01T00:00:00"}',
    "a long digest": b'{"phase": "Running", "checkpoints": [{"number": 1, "digest": "%s", "time": "%s", "samples": 1}]}'
    % (b"x" * 300, utc_now().isoformat().encode()),
    "an endless answer": b'{"phase": "Running", "message": "%s"}' % (b"x" * (2 << 20)),
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
async def test_an_invalid_answer_is_reported_and_not_used(
    trainings: Trainings, trainers: ScriptedTrainers, answer: bytes
) -> None:
    trainers.answers["t"] = answer
    await trainings.create()
    message = await trainings.until("Ready", "False", "TrainerUnreachable")
    assert "invalid status" in message or "longer than" in message
    assert (await trainings.training()).status.phase == "Initializing"


async def test_a_trainer_that_stops_answering_keeps_what_is_known(
    trainings: Trainings, trainers: ScriptedTrainers
) -> None:
    trainers.answers["t"] = running(stale=True, checkpoints=(checkpoint(1),))
    await trainings.create()
    await trainings.until("Stale", "True")
    trainers.answers["t"] = 500
    await trainings.until("Ready", "False", "TrainerUnreachable")
    status = (await trainings.training()).status
    assert (status.phase, status.currentSamples, len(status.checkpoints)) == ("Running", 1000, 1)
    await trainings.until("Stale", "True", "NoNewSamples")
    trainers.answers["t"] = running(samples=3000)
    await trainings.until("Ready")
    status = (await trainings.training()).status
    assert (status.currentSamples, status.checkpoints, status.modelVersion) == (3000, (), None)


async def test_hostile_text_is_shortened_to_one_line(trainings: Trainings, trainers: ScriptedTrainers) -> None:
    text = "\x1b[31m" + "a\n" * 5000
    trainers.answers["t"] = running(message=text, diverged=text, excluded_nodes={"n": text})
    await trainings.create()
    message = await trainings.until("Diverged", "True")
    assert "\x1b" not in message
    assert len(message) <= 300
    status = (await trainings.training()).status
    assert [(one.name, len(one.message) <= 300) for one in status.excludedNodes] == [("n", True)]
