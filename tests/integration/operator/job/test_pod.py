"""Worker Pods, created on a real API server in a namespace that enforces the restricted Pod security standard."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.support.waiting import eventually
from vmafx.api.job import JobSpecView, JobView
from vmafx.api.meta import LocalSecretRef, MetaView
from vmafx.api.node import NodeView, VmafxNodeSpec
from vmafx.api.pod import PodOverlay
from vmafx.api.scoring import RawFormat, ScoringOptions
from vmafx.api.units import quantity
from vmafx.jobs.attempt import CREDENTIAL_VARIABLES, SPEC_VARIABLE, AttemptSpec
from vmafx.kube import NAMESPACES, Client, ObjectKey, Resource
from vmafx.kube.errors import AlreadyExists, Forbidden
from vmafx.kube.resources import UntypedObject
from vmafx.operator.job.pod import KUEUE_LABEL, PodSettings, make_pod, pod_name
from vmafx.operator.job.settings import JobSettings
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.settings import InvalidSetting, from_environ

PODS: Resource[UntypedObject] = Resource("", "v1", "pods", "Pod", dict)
ACCOUNTS: Resource[UntypedObject] = Resource("", "v1", "serviceaccounts", "ServiceAccount", dict)
SETTINGS = PodSettings("registry.example/vmafx:1")
LIMITED = PodSettings(SETTINGS.image, cpu_request="1", memory_request="2Gi", memory_limit="16Gi", scratch_limit="130Gi")
OVERLAY = {
    "volumes": [{"name": "clips", "persistentVolumeClaim": {"claimName": "clips", "readOnly": True}}],
    "volumeMounts": [{"name": "clips", "mountPath": "/clips", "readOnly": True}],
    "env": [{"name": "VMAFX_WORK", "value": "forged"}, {"name": "VMAFX_MEDIA_ROOTS", "value": "/clips"}],
    "envFrom": [{"configMapRef": {"name": "settings", "optional": True}}],
    "imagePullSecrets": [{"name": "pull"}],
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "nodeSelector": {"gpu": "yes"},
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [{"key": "fast", "operator": "Exists"}]}}]}},
    "runtimeClassName": "nvidia",
    "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
}  # fmt: skip


@pytest.fixture
async def restricted(client: Client, namespace: str) -> str:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    await client.merge_patch(NAMESPACES, ObjectKey("", namespace), {"metadata": {"labels": labels}})
    with suppress(AlreadyExists):  # the controller manager creates it too
        await client.create(ACCOUNTS, {"metadata": {"name": "default"}}, namespace)

    async def refuses() -> bool:
        loose = {"metadata": {"name": "loose"}, "spec": {"containers": [{"name": "any", "image": "i"}]}}
        try:
            await client.create(PODS, loose, namespace, dry_run=True)
        except Forbidden as error:
            return "restricted" in str(error)
        return False

    await eventually(refuses, "the server's admission has read the label")
    return namespace


def job(namespace: str, **spec: Any) -> JobView:
    meta = MetaView("clip", namespace, "8a3c", creationTimestamp=datetime.now(UTC), labels={KUEUE_LABEL: "batch"})
    return JobView(meta, JobSpecView("s3://b/r.mp4", "s3://b/d.mp4", **spec))


def node(vendor: Any = "cpu", **spec: Any) -> NodeView:
    return NodeView(MetaView("pool", "x"), VmafxNodeSpec(vendor, **spec))


async def create(client: Client, pod: dict[str, Any], namespace: str) -> dict[str, Any]:
    return await client.create(PODS, pod, namespace)


async def test_a_pod_without_options_is_accepted_and_has_no_token(client: Client, restricted: str) -> None:
    one = job(restricted)
    stored = await create(client, make_pod(one, node(), 0, SETTINGS), restricted)
    (container,) = stored["spec"]["containers"]
    assert container["image"] == "registry.example/vmafx:1"
    assert "limits" not in container["resources"]
    assert stored["metadata"]["name"] == pod_name(one, 0) == "clip-0"
    assert stored["metadata"]["labels"][KUEUE_LABEL] == "batch"
    assert stored["metadata"]["ownerReferences"][0]["uid"] == "8a3c"
    assert stored["spec"]["automountServiceAccountToken"] is False
    assert not any("projected" in volume for volume in stored["spec"]["volumes"])  # no token


def test_a_uri_cannot_read_other_variables() -> None:
    """The kubelet expands $(NAME) in the value of a variable, which could be a password."""
    plain = job("x")
    spec = msgspec.structs.replace(plain.spec, distorted="https://example.com/$(PASSWORD)/$$(PASSWORD)/a$b.mp4")
    wanted = msgspec.structs.replace(plain, spec=spec)
    (container,) = make_pod(wanted, node(), 0, SETTINGS)["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in container["env"]}
    assert not any("$" in value for value in variables.values())
    assert msgspec.json.decode(variables[SPEC_VARIABLE], type=AttemptSpec).distorted == wanted.spec.distorted


async def test_every_option_of_a_job_and_a_node_is_in_the_pod(client: Client, restricted: str) -> None:
    raw = RawFormat(width=576, height=324, pixelFormat="yuv420p10le")
    options = ScoringOptions(subsample=2, features=("psnr",))
    secret = LocalSecretRef("keys")
    one = job(
        restricted,
        referenceFormat=raw,
        backend="cuda",
        options=options,
        output="s3://b/o.json",
        credentialsSecretRef=secret,
    )
    overlay = msgspec.convert(OVERLAY, PodOverlay)
    pod = make_pod(one, node("nvidia", image="own:2", podTemplate=overlay), 3, SETTINGS, frozenset({"bad-1"}))
    pod["spec"].pop("runtimeClassName")  # the server has no such RuntimeClass
    stored = await create(client, pod, restricted)
    (container,) = stored["spec"]["containers"]
    values = {variable["name"]: variable.get("value") for variable in container["env"]}  # the last one wins
    decoded = msgspec.json.decode(values["VMAFX_WORK"], type=AttemptSpec)
    assert decoded == AttemptSpec(
        "s3://b/r.mp4", "s3://b/d.mp4", raw, backend="cuda", options=options, output="s3://b/o.json", id="8a3c-3"
    )
    assert (values["VMAFX_BACKEND"], values["VMAFX_MEDIA_ROOTS"]) == ("cuda", "/clips")
    assert container["image"] == "own:2"
    assert container["resources"]["limits"] == {"memory": "2Gi", "nvidia.com/gpu": "1"}
    assert container["envFrom"] == OVERLAY["envFrom"]  # the Secret of the job is not added as a whole
    sources = {one["name"]: one["valueFrom"] for one in container["env"] if "valueFrom" in one}
    assert sources == {
        f"VMAFX_JOB_{key}": {"secretKeyRef": {"name": "keys", "key": key, "optional": True}}
        for key in CREDENTIAL_VARIABLES
    }
    assert {"key": "gpu", "operator": "Exists"} in stored["spec"]["tolerations"]
    preferred = stored["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [term["weight"] for term in preferred] == [1, 100]
    assert preferred[1]["preference"]["matchFields"][0]["values"] == ["bad-1"]


@pytest.mark.parametrize(
    ("vendor", "backend", "taint"),
    [
        ("nvidia", None, "nvidia.com/gpu"),
        ("amd", "hip", "amd.com/gpu"),
        ("intel", "sycl", "gpu.intel.com/xe"),
        ("nvidia", "cpu", None),
        ("cpu", None, None),
    ],
)
def test_a_pod_tolerates_the_taint_of_the_gpu_that_it_requests(
    vendor: str, backend: str | None, taint: str | None
) -> None:
    settings = msgspec.structs.replace(SETTINGS, intel_device="gpu.intel.com/xe")
    pod = make_pod(job("a", backend=backend), node(vendor), 0, settings)
    of_gpus = [one for one in pod["spec"]["tolerations"] if "node.kubernetes.io" not in one["key"]]
    assert of_gpus == ([{"key": taint, "operator": "Exists", "effect": "NoSchedule"}] if taint else [])


async def test_a_job_with_the_cpu_backend_requests_no_gpu(client: Client, restricted: str) -> None:
    stored = await create(client, make_pod(job(restricted, backend="cpu"), node("nvidia"), 0, SETTINGS), restricted)
    (container,) = stored["spec"]["containers"]
    assert "limits" not in container["resources"]
    assert {"name": "VMAFX_BACKEND", "value": "cpu"} in container["env"]


async def test_a_job_without_a_backend_leaves_it_to_the_worker(client: Client, restricted: str) -> None:
    """On a GPU node, too: the worker uses the best engine it has. A variable of the node does not change that."""
    overlay = msgspec.convert({"env": [{"name": "VMAFX_BACKEND", "value": "cuda"}]}, PodOverlay)
    pod = make_pod(job(restricted), node("nvidia", podTemplate=overlay), 0, SETTINGS)
    (container,) = (await create(client, pod, restricted))["spec"]["containers"]
    values = {variable["name"]: variable.get("value") for variable in container["env"]}  # the last one wins
    assert values["VMAFX_BACKEND"] == "auto"
    assert msgspec.json.decode(values["VMAFX_WORK"], type=AttemptSpec).backend is None
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}


def scratch(pod: dict[str, Any]) -> Any:
    return next(volume["emptyDir"] for volume in pod["spec"]["volumes"] if volume["name"] == "scratch")


async def test_a_pod_has_the_resources_of_the_operator_unless_its_node_sets_them(
    client: Client, restricted: str
) -> None:
    plain = await create(client, make_pod(job(restricted), node("nvidia"), 0, LIMITED), restricted)
    (container,) = plain["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "1", "memory": "2Gi", "nvidia.com/gpu": "1"},
        "limits": {"memory": "16Gi", "nvidia.com/gpu": "1"},
    }
    assert scratch(plain) == {"sizeLimit": "130Gi"}
    overlay = msgspec.convert({"resources": {"requests": {"cpu": 4}, "limits": {"memory": "8Gi"}}}, PodOverlay)
    own = await create(client, make_pod(job(restricted), node(podTemplate=overlay), 1, LIMITED), restricted)
    (container,) = own["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"memory": "8Gi"}}


@pytest.mark.parametrize(
    ("of_node", "requests", "limits"),
    [
        ({"limits": {"memory": "1Gi"}}, {"cpu": "1", "memory": "1Gi"}, {"memory": "1Gi"}),
        ({"requests": {"memory": "32Gi"}}, {"cpu": "1", "memory": "32Gi"}, {"memory": "32Gi"}),
        ({"limits": {"cpu": "500m"}}, {"cpu": "500m", "memory": "2Gi"}, {"cpu": "500m", "memory": "16Gi"}),
    ],
)
async def test_what_a_node_sets_is_not_contradicted_by_the_operator(
    client: Client, restricted: str, of_node: Any, requests: Any, limits: Any
) -> None:
    """The API server rejects a request above its limit."""
    overlay = msgspec.convert({"resources": of_node}, PodOverlay)
    stored = await create(client, make_pod(job(restricted), node(podTemplate=overlay), 0, LIMITED), restricted)
    (container,) = stored["spec"]["containers"]
    assert container["resources"] == {"requests": requests, "limits": limits}


@pytest.mark.parametrize(
    ("of_node", "volume"),
    [
        ({"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "5Gi"}}]}, {"sizeLimit": "5Gi"}),
        (
            {"volumes": [{"name": "scratch", "emptyDir": {"medium": "Memory"}}]},
            {"medium": "Memory", "sizeLimit": "130Gi"},
        ),
        ({"resources": {"limits": {"ephemeral-storage": "300Gi"}}}, {}),
    ],
)
async def test_a_node_sets_the_size_of_the_scratch_volume(
    client: Client, restricted: str, of_node: Any, volume: Any
) -> None:
    overlay = msgspec.convert(of_node, PodOverlay)
    pod = make_pod(job(restricted), node(podTemplate=overlay), 0, LIMITED)
    assert scratch(await create(client, pod, restricted)) == volume


@pytest.mark.parametrize(
    ("of_node", "limit"),
    [
        ({}, 130 << 30),
        ({"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "5G"}}]}, 5 * 10**9),
        ({"volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "0"}}]}, None),  # no limit, for the kubelet too
        ({"resources": {"limits": {"ephemeral-storage": "300Gi"}}}, 300 << 30),
        (
            {
                "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "5Gi"}}],
                "resources": {"limits": {"ephemeral-storage": 1 << 30}},
            },
            1 << 30,
        ),
    ],
)
def test_the_worker_has_the_limit_of_its_scratch_volume(of_node: Any, limit: int | None) -> None:
    overlay = msgspec.convert(of_node, PodOverlay)
    (container,) = make_pod(job("x"), node(podTemplate=overlay), 0, LIMITED)["spec"]["containers"]
    values = {variable["name"]: variable["value"] for variable in container["env"]}
    assert values.get("VMAFX_SCRATCH_LIMIT") == (limit and str(limit))


@pytest.mark.parametrize(
    ("settings", "of_node", "threads"),
    [
        (SETTINGS, {}, "4"),
        (LIMITED, {}, "4"),  # a request of 1 CPU is what a job has at least, not at most
        (LIMITED, {"requests": {"cpu": "6500m"}}, "7"),
        (LIMITED, {"requests": {"cpu": 200}}, "128"),
    ],
)
def test_a_worker_without_a_cpu_limit_has_threads_by_its_request(
    settings: PodSettings, of_node: Any, threads: str
) -> None:
    overlay = msgspec.convert({"resources": of_node}, PodOverlay)
    (container,) = make_pod(job("x"), node(podTemplate=overlay), 0, settings)["spec"]["containers"]
    assert {"name": "VMAFX_AUTO_THREADS", "value": threads} in container["env"]
    assert not any(one["name"] == "VMAFX_THREADS" for one in container["env"])  # would override envFrom of the node


def test_the_defaults_of_the_operator_let_2160p_be_scored() -> None:
    settings = from_environ(JobSettings, {})
    assert (settings.worker_cpu_request, settings.worker_memory_request) == ("500m", "1Gi")
    assert settings.worker_memory_limit == ""
    assert quantity(settings.worker_scratch_limit) > 2 * from_environ(MediaPolicy, {}).max_bytes
    assert from_environ(JobSettings, {"VMAFX_WORKER_MEMORY_REQUEST": "0"}).worker_memory_request == ""
    with pytest.raises(InvalidSetting, match="VMAFX_WORKER_CPU_REQUEST: 'two' is not a quantity"):
        from_environ(JobSettings, {"VMAFX_WORKER_CPU_REQUEST": "two"})


async def test_the_namespace_rejects_other_pods(client: Client, restricted: str) -> None:
    loose = make_pod(job(restricted), node(), 0, SETTINGS)
    loose["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(Forbidden, match="restricted"):
        await create(client, loose, restricted)


def test_images_are_pulled_with_the_secrets_of_the_operator_unless_the_node_names_some() -> None:
    secrets = from_environ(JobSettings, {"VMAFX_IMAGE_PULL_SECRETS": "registry, mirror.example"}).pull_secrets
    settings = PodSettings(SETTINGS.image, pull_secrets=secrets)
    spec = make_pod(job("media"), node(), 0, settings)["spec"]
    assert spec["imagePullSecrets"] == [{"name": "registry"}, {"name": "mirror.example"}]
    overlay = msgspec.convert({"imagePullSecrets": [{"name": "own"}]}, PodOverlay)
    spec = make_pod(job("media"), node(podTemplate=overlay), 0, settings)["spec"]
    assert list(spec["imagePullSecrets"]) == [{"name": "own"}]
    with pytest.raises(InvalidSetting, match="VMAFX_IMAGE_PULL_SECRETS: 'No' is not the name of a Secret"):
        from_environ(JobSettings, {"VMAFX_IMAGE_PULL_SECRETS": "No"})
