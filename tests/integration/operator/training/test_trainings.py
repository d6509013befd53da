"""The life of a training, as `kubectl get vmtrain` shows it: real control plane, trainers with scripted answers."""

import msgspec

from tests.conftest import Kubectl
from tests.support.project import ROOT
from tests.support.scripted_trainer import DIGEST, ScriptedTrainers, checkpoint, running
from tests.support.trainings import IMAGE, Trainings
from tests.support.waiting import eventually
from vmafx.kube.core import DEPLOYMENTS, PODS, SECRETS, SERVICE_ACCOUNTS, SERVICES
from vmafx.operator.context import FIELD_MANAGER
from vmafx.runtime.child import MANAGED_BY
from vmafx.training.config import TrainingConfig
from vmafx.training.status import TrainerStatus

NAME = "vmafx-trainer-t"


async def test_a_training_gets_a_trainer_and_reports_what_it_learns(
    trainings: Trainings, trainers: ScriptedTrainers, kubectl: Kubectl
) -> None:
    created = await trainings.create()
    await trainings.until_phase("Initializing")
    await trainings.until("Ready", "False", "TrainerUnreachable")
    assert kubectl("get", "vmtrain").stdout.splitlines()[1].split()[:3] == ["t", "Initializing", "0"]
    trainers.answers["t"] = TrainerStatus(phase="Initializing", message="learning vmaf_v0.6.1")
    assert await trainings.until("Ready", "False", "Starting") == "learning vmaf_v0.6.1"
    trainers.answers["t"] = running(checkpoints=(checkpoint(1),))
    await trainings.until("Ready", "True", "Training")
    head, row = [line.split() for line in kubectl("get", "vmtrain").stdout.splitlines()]
    assert head == ["NAME", "PHASE", "SAMPLES", "MODELVERSION", "AGE"]
    assert row[:4] == ["t", "Running", "1000", f"{DIGEST}1"]
    status = (await trainings.training()).status
    assert (status.loss, status.pearson, status.spearman, status.learningRate) == (12.5, 0.9, 0.8, 0.001)
    assert [(one.number, one.loss, one.pushed) for one in status.checkpoints] == [(1, 10.0, True)]
    assert status.lastCheckpoint == status.checkpoints[0].time
    for kind in (DEPLOYMENTS, SERVICES, SERVICE_ACCOUNTS):
        child = await trainings.get(kind, NAME)
        assert child is not None
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (created.metadata.uid, True)
        assert child["metadata"]["labels"][MANAGED_BY] == FIELD_MANAGER


async def test_the_example_trains(trainings: Trainings, trainers: ScriptedTrainers, kubectl: Kubectl) -> None:
    trainers.answers["house-model"] = running(checkpoints=(checkpoint(1),))
    assert kubectl("apply", "-f", str(ROOT / "examples" / "training.yaml")).returncode == 0
    await trainings.until("Ready", name="house-model")
    message = await trainings.until("Published", name="house-model")
    assert message == f"registry.example.com/models/house@{DIGEST}1"
    assert kubectl("wait", "vmtrain/house-model", "--for=condition=Ready", "--timeout=10s").returncode == 0


async def test_the_pod_of_a_trainer(trainings: Trainings) -> None:
    created = await trainings.create(
        baseModel="file:///models/$(VMAFX_SAMPLES_KEY).json",
        credentialsSecretRef={"name": "registry"},
        outputRegistry="registry.example.com/models/vmaf",
        checkpoint={"interval": "1m30s", "minSamples": 10},
        storage={"size": "2Gi"},
        batchSize=8,
    )
    await trainings.until("Ready", "False", "TrainerUnreachable")
    (pod,) = (await trainings.client.list(PODS, trainings.namespace)).items
    spec, (container,) = pod["spec"], pod["spec"]["containers"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == NAME
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert (container["image"], container["command"]) == (IMAGE, ["vmafx", "trainer"])
    env = {entry["name"]: entry for entry in container["env"]}
    assert "$" not in env["VMAFX_TRAINING"]["value"]  # the kubelet would expand it
    assert msgspec.json.decode(env["VMAFX_TRAINING"]["value"], type=TrainingConfig) == TrainingConfig(
        name="t",
        namespace=trainings.namespace,
        uid=created.metadata.uid,
        base_model="file:///models/$(VMAFX_SAMPLES_KEY).json",
        batch_size=8,
        checkpoint_interval=90.0,
        min_samples=10,
        output_registry="registry.example.com/models/vmaf",
        storage=2 << 30,
    )
    assert env["VMAFX_SAMPLES_KEY"]["valueFrom"] == {"secretKeyRef": {"name": "vmafx-samples", "key": "key"}}
    assert (env["VMAFX_TRAINER_DIR"]["value"], env["DOCKER_CONFIG"]["value"]) == (
        "/var/lib/vmafx",
        "/etc/vmafx/registry",
    )
    assert {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]} == {
        "scratch": "/scratch",
        "data": "/var/lib/vmafx",
        "registry": "/etc/vmafx/registry",
    }
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert volumes["data"]["persistentVolumeClaim"]["claimName"] == NAME
    assert volumes["registry"]["secret"]["items"] == [{"key": ".dockerconfigjson", "path": "config.json"}]
    paths = [container[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe", "readinessProbe")]
    assert paths == ["/healthz", "/healthz", "/readyz"]
    assert await trainings.get(SECRETS, "vmafx-samples") is not None


async def test_pausing_replaces_the_trainer(trainings: Trainings, trainers: ScriptedTrainers, kubectl: Kubectl) -> None:
    trainers.answers["t"] = running()
    await trainings.create()
    await trainings.until("Ready")
    (before,) = (await trainings.client.list(PODS, trainings.namespace)).items
    await trainings.change(paused=True)
    trainers.answers["t"] = TrainerStatus(phase="Paused", samples=1000)
    await trainings.until("Ready", "False", "Paused")
    assert kubectl("get", "vmtrain").stdout.splitlines()[1].split()[:3] == ["t", "Paused", "1000"]

    async def replaced() -> bool:
        pods = (await trainings.client.list(PODS, trainings.namespace)).items
        return before["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in pods} and "paused" in str(pods)

    await eventually(replaced, "the Pod has the new configuration")
    trainers.answers["t"] = running(samples=2000)
    await trainings.change(paused=False)
    await trainings.until("Ready", "True", "Training")
    assert (await trainings.training()).status.currentSamples == 2000
