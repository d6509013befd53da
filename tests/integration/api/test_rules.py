"""The CEL rules of every kind: accepted and rejected objects, and the messages."""

from typing import Any

import pytest

from tests.integration.api.test_fields import SMALLEST, create, lost, untyped
from vmafx.api.crd import definition
from vmafx.api.job import MUTABLE, VmafxJobSpec
from vmafx.api.kinds import KINDS, VmafxJob, VmafxModelTraining, VmafxNode, ZerfooInferenceService
from vmafx.api.meta import API_VERSION, CustomObject
from vmafx.kube import Client, ObjectKey
from vmafx.kube.errors import BadRequest, Invalid

JOB, NODE, TRAINING, SERVICE = VmafxJob, VmafxNode, VmafxModelTraining, ZerfooInferenceService
RAW = {"width": 576, "height": 324, "pixelFormat": "yuv420p"}
STEPS = [{"weight": 5, "pause": "1m"}, {"weight": 25, "pause": 60_000_000_000}]

ACCEPTED: list[tuple[type[CustomObject], dict[str, Any]]] = [
    (JOB, {"reference": "s3://bucket/a%20b.mp4"}),
    (JOB, {"reference": "file:///a.YUV", "referenceFormat": RAW}),
    (JOB, {"model": "file:///models/mine.json"}),
    (JOB, {"options": {"pooling": "p5", "features": ["psnr", "cambi"]}}),
    (JOB, {"schedulerName": "my.scheduler-2"}),
    (JOB, {"credentialsSecretRef": {"name": "clip-store"}}),
    (NODE, {"podTemplate": {"volumes": [{"name": "a", "emptyDir": {}}]}}),
    (NODE, {"podTemplate": {"volumes": [{"name": "a", "nfs": {"server": "s", "path": "/"}}],
                            "volumeMounts": [{"name": "a", "mountPath": "/a"}]}}),
    (JOB, {"humanScore": 0}),
    (JOB, {"humanScore": 99.5}),
    (TRAINING, {"checkpoint": {"interval": "1h30m", "minSamples": 1}}),
    (TRAINING, {"credentialsSecretRef": {"name": "registry"}}),
    (TRAINING, {"outputRegistry": "localhost:5000/models/vmaf_2"}),
    (TRAINING, {"storage": {"size": "1.5Ti"}}),
    (SERVICE, {"minReplicas": 2, "maxReplicas": 2}),
    (SERVICE, {"minReplicas": 0, "maxReplicas": 5}),
    (SERVICE, {"resources": {"cpu": "4", "memory": "16Gi", "gpuMemory": ""}}),
    (NODE, {"podTemplate": {"nodeSelector": {"example.com/gpu": "a100-80"}, "resources": {"limits": {"cpu": "1e3"}}}}),
    (JOB, {"nodeSelector": {"rack": "", "topology.kubernetes.io/zone": "eu_1.a"}}),
    (SERVICE, {"canary": {"modelRef": "other", "weight": 25, "steps": STEPS}}),
    (SERVICE, {"healthCheck": {"interval": 10_000_000_000, "timeout": "1.5s", "path": "/ready?deep=1"}}),
    (SERVICE, {"resources": {"cpu": 4, "memory": "16Gi", "gpuMemory": "24e9"}}),
]  # fmt: skip

REJECTED: list[tuple[type[CustomObject], dict[str, Any], str]] = [
    (JOB, {"reference": "/clips/a.mp4"}, "must be a URI with a scheme"),
    (JOB, {"distorted": "file:///a b.mp4"}, "no spaces, such as file:///clips/a.mp4"),
    (JOB, {"output": "reports/a.json"}, "must be a URI"),
    (JOB, {"reference": "file:///a.yuv"}, "referenceFormat must be set for a .yuv clip"),
    (JOB, {"distorted": "file:///a.Yuv"}, "distortedFormat must be set for a .yuv clip"),
    (JOB, {"model": "../secret"}, "must be a model name, such as vmaf_v0.6.1, or a URI"),
    (JOB, {"options": {"pooling": "p0"}}, "mean, harmonic_mean, min, max, median or a percentile p1 to p99"),
    (JOB, {"options": {"features": ["psnr", "psnr"]}}, "Duplicate value"),
    (JOB, {"schedulerName": "My_Scheduler"}, "must be a Kubernetes name"),
    (JOB, {"credentialsSecretRef": {"name": "a/b"}}, "must be a Kubernetes name"),
    (JOB, {"backend": "gpu"}, 'supported values: "cpu", "cuda", "hip", "metal", "sycl"'),
    (JOB, {"priority": -1}, "greater than or equal to 0"),
    (JOB, {"reference": "https://h/a.yuv?signature=x"}, "referenceFormat must be set for a .yuv clip"),
    (JOB, {"nodeSelector": {"not a key!": "a"}}, "must have valid label keys, such as rack"),
    (JOB, {"nodeSelector": {"rack": "b c"}}, "must be a label value"),
    (JOB, {"humanScore": 100.5}, "less than or equal to 100"),
    (JOB, {"humanScore": -1}, "greater than or equal to 0"),
    (NODE, {"gpuVendor": "voodoo"}, "supported values"),
    (NODE, {"podTemplate": {"volumes": [{"name": "A b", "emptyDir": {}}]}}, "such as corpus"),
    (NODE, {"podTemplate": {"env": [{"name": "A", "valueFrom": {}}]}}, "valueFrom must have exactly one of"),
    (NODE, {"podTemplate": {"resources": {"limits": {"cpu": "lots"}}}}, "must be a quantity, such as"),
    (NODE, {"podTemplate": {"resources": {"limits": {"cpu": "1e999999999"}}}}, "must be a quantity, such as"),
    (NODE, {"podTemplate": {"volumes": [{"name": "a"}]}}, "exactly one of configMap, secret"),
    (NODE, {"podTemplate": {"volumes": [{"name": "a", "emptyDir": {}, "secret": {"secretName": "s"}}]}},
     "hostPath is not allowed"),
    (NODE, {"podTemplate": {"volumeMounts": [{"name": "a", "mountPath": "/a"}]}}, "volumeMounts must refer to volumes"),
    (NODE, {"podTemplate": {"imagePullSecrets": [{"name": "A"}]}}, "must be a Kubernetes name"),
    (TRAINING, {"baseModel": "a b"}, "must be a model name"),
    (TRAINING, {"credentialsSecretRef": {"name": "A"}}, "must be a Kubernetes name"),
    (TRAINING, {"checkpoint": {"interval": "ten minutes"}}, "such as 10s, 1m30s or 500ms"),
    (TRAINING, {"checkpoint": {"interval": "0s"}}, "must be a duration greater than zero"),
    (TRAINING, {"outputRegistry": "registry.example.com/models/vmaf:3"}, "without a tag"),
    (TRAINING, {"storage": {"size": "0Gi"}}, "must be a quantity greater than zero"),
    (TRAINING, {"storage": {"size": "1e999999999"}}, "must be a quantity greater than zero"),
    (TRAINING, {"storage": {"size": "1Gi", "className": "_"}}, "must be a Kubernetes name"),
    (SERVICE, {"modelRef": "-x"}, "must be a model name or reference"),
    (SERVICE, {"minReplicas": 3, "maxReplicas": 2}, "maxReplicas must be greater than or equal to minReplicas"),
    (SERVICE, {"canary": {"modelRef": "llama3-8b-q4"}}, "canary.modelRef must be different from modelRef"),
    (SERVICE, {"canary": {"modelRef": "other", "weight": 101}}, "less than or equal to 100"),
    (SERVICE, {"canary": {"modelRef": "other", "weight": 50, "steps": STEPS[::-1]}}, "strictly increasing weights"),
    (SERVICE, {"canary": {"modelRef": "other", "weight": 50, "steps": [STEPS[0]] * 2}}, "strictly increasing weights"),
    (SERVICE, {"canary": {"modelRef": "other", "weight": 10, "steps": STEPS}}, "equal to the weight of the canary"),
    (SERVICE, {"healthCheck": {"interval": "0s"}}, "must be a duration greater than zero"),
    (SERVICE, {"healthCheck": {"timeout": "soon"}}, "such as 10s, 1m30s or 500ms"),
    (SERVICE, {"healthCheck": {"timeout": 0}}, "greater than or equal to 1"),
    (SERVICE, {"gpuVendor": "cpu", "resources": {"gpuMemory": "1Gi"}}, "resources.gpuMemory must be unset"),
    (SERVICE, {"healthCheck": {"timeout": "11s"}}, "timeout must be less than or equal to interval"),
    (SERVICE, {"healthCheck": {"path": "healthz"}}, "must be a path that starts with /"),
    (SERVICE, {"canary": {"modelRef": "other", "gates": {"maxLatencyP99": "0ms"}}}, "must be a duration"),
    (SERVICE, {"canary": {"modelRef": "other", "weight": 5, "steps": [{"weight": 5, "pause": "x"}]}},
     "must be a duration"),
    (SERVICE, {"resources": {"cpu": "0"}}, "must be a quantity greater than zero"),
    (SERVICE, {"resources": {"memory": "much"}}, "such as 500m, 4 or 16Gi"),
    (SERVICE, {"resources": {"gpuMemory": "-1"}}, "must be a quantity greater than zero"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "spec"), ACCEPTED)
async def test_a_valid_spec_is_accepted(
    client: Client, namespace: str, kind: type[CustomObject], spec: dict[str, Any]
) -> None:
    await create(client, namespace, kind, SMALLEST[kind] | spec)


@pytest.mark.parametrize(("kind", "spec", "error"), REJECTED)
async def test_an_invalid_spec_is_rejected_with_its_message(
    client: Client, namespace: str, kind: type[CustomObject], spec: dict[str, Any], error: str
) -> None:
    with pytest.raises(Invalid) as raised:
        await create(client, namespace, kind, SMALLEST[kind] | spec)
    causes = [cause.message for cause in raised.value.status.details.causes if cause.field.startswith("spec")]
    assert any(error in message for message in causes), causes


# Rules on changes, names and times have their own tests below.
TESTED_BELOW = (
    "is immutable",
    "cancel must not be unset",
    "metadata.name",
    "phase must not change",
    "must be an RFC 3339 time",
)


def test_every_rule_has_a_rejected_case() -> None:
    untested = [
        message
        for kind in KINDS
        for message in messages(definition(kind))
        if not any(error in message for error in (*(error for _, _, error in REJECTED), *TESTED_BELOW))
    ]
    assert untested == []


def messages(schema: Any) -> list[str]:
    if isinstance(schema, dict):
        own = [rule["message"] for rule in schema.get("x-kubernetes-validations", ())]
        return own + [message for part in schema.values() for message in messages(part)]
    return [message for part in schema for message in messages(part)] if isinstance(schema, list) else []


CHANGES: dict[str, Any] = {
    "reference": "file:///c.mp4",
    "distorted": "file:///c.mp4",
    "referenceFormat": RAW,
    "distortedFormat": RAW,
    "model": "vmaf_4k_v0.6.1",
    "backend": "cuda",
    "nodeSelector": {"rack": "a"},
    "retryLimit": 5,
    "activeDeadlineSeconds": 60,
    "options": {"subsample": 2},
    "output": "file:///out.json",
    "credentialsSecretRef": {"name": "other"},
    "schedulerName": "other",
    "suspend": True,
    "cancel": True,
    "priority": 7,
    "ttlSecondsAfterFinished": 60,
    "humanScore": 72.5,
}
IMMUTABLE = sorted(set(VmafxJobSpec.__struct_fields__) - MUTABLE)


def test_every_field_of_a_job_has_a_change() -> None:
    assert set(CHANGES) == set(VmafxJobSpec.__struct_fields__)


async def job_with(client: Client, namespace: str, spec: dict[str, Any]) -> ObjectKey:
    made = await create(client, namespace, VmafxJob, SMALLEST[VmafxJob] | spec)
    return ObjectKey(namespace, made["metadata"]["name"])


@pytest.mark.parametrize("field", IMMUTABLE)
async def test_an_immutable_field_cannot_be_set_changed_or_removed(client: Client, namespace: str, field: str) -> None:
    error = f"{field} is immutable"
    jobs, change = untyped(VmafxJob), {"spec": {field: CHANGES[field]}}
    unset = await job_with(client, namespace, {})
    with pytest.raises(Invalid, match=error):
        await client.merge_patch(jobs, unset, change)
    if field not in SMALLEST[VmafxJob]:
        already_set = await job_with(client, namespace, {field: CHANGES[field]})
        with pytest.raises(Invalid, match=error):
            await client.merge_patch(jobs, already_set, {"spec": {field: None}})
        assert list(lost(CHANGES[field], (await client.get(jobs, already_set))["spec"][field])) == []
        await client.merge_patch(jobs, already_set, change)  # the same value is accepted


async def test_every_changed_immutable_field_is_named_with_its_path(client: Client, namespace: str) -> None:
    key = await job_with(client, namespace, {"output": "file:///a.json", "options": {"subsample": 3}})
    change = {"reference": "file:///c.mp4", "retryLimit": 5, "options": {"subsample": 2}, "output": None, "priority": 7}
    with pytest.raises(Invalid) as raised:
        await client.merge_patch(untyped(VmafxJob), key, {"spec": change})
    causes = {(cause.field, cause.message.rpartition(": ")[2]) for cause in raised.value.status.details.causes}
    assert causes == {
        ("spec.reference", "reference is immutable; create a new job instead"),
        ("spec.retryLimit", "retryLimit is immutable; create a new job instead"),
        ("spec.options", "options is immutable; create a new job instead"),
        ("spec", "output is immutable; create a new job instead"),
    }


@pytest.mark.parametrize("field", sorted(MUTABLE))
async def test_a_mutable_field_can_be_changed(client: Client, namespace: str, field: str) -> None:
    key = await job_with(client, namespace, {})
    changed = await client.merge_patch(untyped(VmafxJob), key, {"spec": {field: CHANGES[field]}})
    assert changed["spec"][field] == CHANGES[field]


@pytest.mark.parametrize("value", [False, None])
async def test_cancel_cannot_be_unset(client: Client, namespace: str, value: bool | None) -> None:
    key = await job_with(client, namespace, {"cancel": True})
    with pytest.raises(Invalid, match="cancel must not be unset"):
        await client.merge_patch(untyped(VmafxJob), key, {"spec": {"cancel": value}})


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
@pytest.mark.parametrize("after", ["Pending", "Running", "Succeeded", "Failed", None])
async def test_a_finished_phase_never_changes(client: Client, namespace: str, end: str, after: str | None) -> None:
    jobs, key = untyped(VmafxJob), await job_with(client, namespace, {})
    await client.patch_status(jobs, key, {"phase": "Running"})
    await client.patch_status(jobs, key, {"phase": end})
    if after == end:
        await client.patch_status(jobs, key, {"phase": after, "message": "still"})
        return
    with pytest.raises(Invalid, match="phase must not change"):
        await client.patch_status(jobs, key, {"phase": after})
    with pytest.raises(Invalid, match="phase must not change"):
        await client.merge_patch(jobs, key, {"status": None}, "status")
    await client.merge_patch(jobs, key, {"metadata": {"labels": {"seen": "yes"}}})


@pytest.mark.parametrize("not_a_time", [[], "0000-05-28T12:30:15Z", "yesterday", 5])
async def test_an_invalid_time_is_rejected(client: Client, namespace: str, not_a_time: Any) -> None:
    """The server's own validation of date-times accepts an empty list."""
    key = await job_with(client, namespace, {})
    with pytest.raises(Invalid, match=r"status\.startedAt.*(must be an RFC 3339 time|must be of type date-time)"):
        await client.patch_status(untyped(VmafxJob), key, {"startedAt": not_a_time})


@pytest.mark.parametrize(
    ("kind", "name", "accepted"),
    [
        (JOB, "a" * 52, True),
        (JOB, "a" * 53, False),
        (JOB, "1.dotted.name", True),
        (TRAINING, "a" * 40, True),
        (TRAINING, "a" * 41, False),
        (TRAINING, "1a", False),
        (SERVICE, "a" * 40, True),
        (SERVICE, "a" * 41, False),
        (SERVICE, "a.b", False),
    ],
)
async def test_names_are_limited_to_leave_room_for_suffixes(
    client: Client, namespace: str, kind: type[CustomObject], name: str, accepted: bool
) -> None:
    metadata = {"name": name}
    body = {"apiVersion": API_VERSION, "kind": kind.__name__, "metadata": metadata, "spec": SMALLEST[kind]}
    if accepted:
        await client.create(untyped(kind), body, namespace)
        return
    with pytest.raises(Invalid, match=r"metadata\.name .*at most") as raised:
        await client.create(untyped(kind), body, namespace)
    assert [cause.field for cause in raised.value.status.details.causes] == ["metadata.name"]


@pytest.mark.parametrize("kind", KINDS)
async def test_an_unknown_field_is_rejected_by_name(client: Client, namespace: str, kind: type[CustomObject]) -> None:
    with pytest.raises(BadRequest, match=r'unknown field "spec\.colour"'):
        await create(client, namespace, kind, SMALLEST[kind] | {"colour": "blue"})
    with pytest.raises(BadRequest, match=r'unknown field "spec.podTemplate.volumes\[0\].hostPath"'):
        await create(
            client, namespace, NODE,
            {"gpuVendor": "cpu", "podTemplate": {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]}},
        )  # fmt: skip
