"""The manifests of a service's children."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.api.hardware import Vendor
from vmafx.api.inference import HealthCheckSpec, ResourceSpec
from vmafx.api.restricted import SCRATCH
from vmafx.http.limits import LIMITS
from vmafx.inference.children import HPA, TRACKS, Deployment, Service, ServiceRef, Track, WeightedTarget
from vmafx.inference.gpu import GpuOptions
from vmafx.inference.live import env_value
from vmafx.inference.manifests import (
    DRAIN_SECONDS,
    STARTUP_SECONDS,
    TERMINATION_GRACE,
    ServingOptions,
    budget_manifest,
    deployment_manifest,
    hpa_manifest,
    parse_weights,
    rounding_notes,
    service_manifest,
    weights_text,
    whole_seconds,
)
from vmafx.serving.settings import ServeSettings
from vmafx.settings import declared, load

REF = ServiceRef("media", "m")
OPTIONS = ServingOptions("registry.example.com/serving:1", vmafx_image="vmafx:latest")
SCORING = ServingOptions(vmafx_image="vmafx:latest")
LABELS = {"app.kubernetes.io/name": "vmafx-inference", "vmafx.dev/service": "m"}
PRIMARY = {**LABELS, "vmafx.dev/track": "primary"}


def manifest(
    track: Track = "primary", *, with_replicas: bool = True, options: ServingOptions = OPTIONS, **fields: Any
) -> dict[str, Any]:
    deployment = Deployment(REF.deployment(track), "media", **{"replicas": 3, "modelRef": "model:1", **fields})
    return deployment_manifest(deployment, REF, options, with_replicas=with_replicas)


def server(**fields: Any) -> dict[str, Any]:
    (container,) = manifest(**fields)["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def environment(**fields: Any) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in server(**fields)["env"]}


@pytest.mark.parametrize("track", ["primary", "canary"])
def test_a_deployment_selects_the_pods_of_its_track(track: Track) -> None:
    made = manifest(track)
    selector = {"vmafx.dev/service": "m", "vmafx.dev/track": track}
    assert (made["apiVersion"], made["kind"]) == ("apps/v1", "Deployment")
    assert made["metadata"] == {"name": f"m-{track}", "labels": {**LABELS, **selector}}
    assert made["spec"]["selector"] == {"matchLabels": selector}
    assert made["spec"]["template"]["metadata"]["labels"] == {**LABELS, **selector}
    assert made["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_replicas_belong_to_the_service_or_to_an_autoscaler() -> None:
    assert manifest(with_replicas=True)["spec"]["replicas"] == 3
    assert "replicas" not in manifest(with_replicas=False)["spec"]


def test_the_image_of_the_service_comes_before_the_default() -> None:
    assert server()["image"] == "registry.example.com/serving:1"
    assert server(image="registry.example.com/mine:2")["image"] == "registry.example.com/mine:2"


def test_without_another_image_the_scoring_server_runs_in_the_image_of_vmafx() -> None:
    container = server(options=SCORING)
    assert (container["image"], container["command"]) == ("vmafx:latest", ["vmafx", "serve"])
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    own = {"VMAFX_SERVE_GRPC_LISTEN"}
    assert {name: value for name, value in environment(options=SCORING).items() if name not in own} == environment()


@pytest.mark.parametrize(
    ("options", "image"), [(OPTIONS, None), (OPTIONS, "mine:2"), (SCORING, "vmafx:latest")], ids=str
)
def test_another_image_runs_with_its_own_entrypoint_and_knows_nothing_of_the_scoring_server(
    options: ServingOptions, image: str | None
) -> None:
    """Its Deployment does not change when the operator learns more about the scoring server."""
    container = server(options=msgspec.structs.replace(options, domain="models.example.com"), image=image)
    assert {"command", "args", "terminationMessagePolicy"}.isdisjoint(container)
    assert {entry["name"] for entry in container["env"]} == {"PORT", "MODEL_REF", "HOME", "TMPDIR"}
    assert container["readinessProbe"] == container["livenessProbe"]


def test_the_scoring_server_answers_to_its_host_at_the_gateway() -> None:
    options = msgspec.structs.replace(SCORING, domain="models.example.com")
    for track in TRACKS:
        variables = environment(track=track, options=options)
        assert variables["VMAFX_SERVE_GATEWAY_HOST"] == "m.media.models.example.com"
        assert "VMAFX_SERVE_HOSTS" not in variables  # is for other names, which people add


def test_the_scoring_server_is_ready_once_it_has_its_model_and_alive_before_and_after() -> None:
    container = server(options=SCORING)
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("readiness", "liveness", "startup")}
    assert paths == {"readiness": "/readyz", "liveness": "/healthz", "startup": "/healthz"}
    given = server(options=SCORING, healthCheck=HealthCheckSpec("/openapi.json"))
    assert {given[f"{name}Probe"]["httpGet"]["path"] for name in paths} == {"/openapi.json"}


def test_the_scoring_server_stops_before_its_pod_is_killed() -> None:
    """Its jobs have time to finish, and its last responses time to be sent."""
    settings = load(ServeSettings, "vmafx serve", "", [], environment(options=SCORING))
    assert DRAIN_SECONDS + settings.grace + LIMITS.stop_seconds < TERMINATION_GRACE


def test_the_environment_of_the_scoring_server_has_settings_of_it() -> None:
    options = msgspec.structs.replace(SCORING, domain="models.example.com")
    variables = environment(options=options, port=9090, modelRef="vmaf_v0.6.1neg", gpuVendor="cpu")
    settings = load(ServeSettings, "vmafx serve", "", [], variables)
    assert (settings.port, settings.model, settings.backend) == (9090, "vmaf_v0.6.1neg", "cpu")
    assert settings.grpc_address is None  # its default is the port of this service
    assert settings.gateway_host == ("m.media.models.example.com",)
    assert {*variables} - {one.variable for one in declared(ServeSettings).values()} == {"HOME", "TMPDIR"}


def test_the_server_reads_its_model_and_port_from_the_environment() -> None:
    assert environment(port=9000) == {"PORT": "9000", "MODEL_REF": "model:1", "HOME": SCRATCH, "TMPDIR": SCRATCH}
    assert server(port=9000)["ports"] == [{"name": "http", "containerPort": 9000, "protocol": "TCP"}]


@pytest.mark.parametrize(
    ("vendor", "backend"), [("nvidia", "cuda"), ("amd", "hip"), ("intel", "sycl"), ("apple", "metal"), ("cpu", "cpu")]
)
def test_a_vendor_has_a_backend(vendor: Vendor, backend: str) -> None:
    assert environment(gpuVendor=vendor)["VMAFX_BACKEND"] == backend


@given(st.text(st.sampled_from("a$(){}VAR"), min_size=1))
def test_the_kubelet_expands_no_variables_in_a_model(model: str) -> None:
    value = environment(modelRef=model)["MODEL_REF"]
    assert expanded(value) == model
    assert env_value(manifest(modelRef=model)["spec"], "MODEL_REF") == model


def expanded(value: str) -> str:
    """What the kubelet makes of a value: $$ is $, and $(NAME) would be a variable."""
    out, rest = "", value
    while rest:
        assert not rest.startswith("$("), value
        taken = 2 if rest.startswith("$$") else 1
        out, rest = out + rest[0], rest[taken:]
    return out


@pytest.mark.parametrize(
    ("resources", "vendor", "amounts"),
    [
        (ResourceSpec("4", "16Gi"), None, {"cpu": "4", "memory": "16Gi"}),
        (ResourceSpec(4, 1024), None, {"cpu": "4", "memory": "1024"}),
        (ResourceSpec("500m"), "cpu", {"cpu": "500m"}),
        (ResourceSpec("", ""), "nvidia", {"nvidia.com/gpu": "1"}),
        (ResourceSpec(gpuMemory="24Gi"), "amd", {"amd.com/gpu": "1"}),
        (ResourceSpec(memory="1Gi"), "intel", {"memory": "1Gi", "gpu.intel.com/i915": "1"}),
        (ResourceSpec("1"), "apple", {"cpu": "1"}),
    ],
)
def test_requests_equal_limits(resources: ResourceSpec, vendor: Vendor | None, amounts: dict[str, str]) -> None:
    assert server(resources=resources, gpuVendor=vendor)["resources"] == {"limits": amounts, "requests": amounts}


def test_without_resources_nothing_is_requested() -> None:
    assert server()["resources"] == {}
    assert server(resources=ResourceSpec(gpuMemory="24Gi"))["resources"] == {}


def test_the_intel_device_is_a_setting() -> None:
    options = ServingOptions("x", GpuOptions("gpu.intel.com/xe"))
    made = deployment_manifest(
        Deployment("m-primary", "media", 1, "a", gpuVendor="intel"), REF, options, with_replicas=True
    )
    assert made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"gpu.intel.com/xe": "1"}


def test_gpu_memory_is_an_affinity() -> None:
    assert "affinity" not in manifest()["spec"]["template"]["spec"]
    assert (
        "affinity" not in manifest(gpuVendor="cpu", resources=ResourceSpec(gpuMemory="1Gi"))["spec"]["template"]["spec"]
    )
    for fields in ({"gpuVendor": "nvidia"}, {"resources": ResourceSpec(gpuMemory="24Gi")}):
        assert "nodeAffinity" in manifest(**fields)["spec"]["template"]["spec"]["affinity"]


@pytest.mark.parametrize(
    ("interval", "timeout", "period", "seconds", "tries"),
    [
        ("10s", "2s", 10, 2, 60),
        ("1500ms", "1.001s", 2, 2, 300),
        (1_500_000_000, 1, 2, 1, 300),
        ("1ns", "1ns", 1, 1, 600),
        ("1h", "30m", 3600, 1800, 3),
        ("2562047h", "1h", 2**31 - 1, 3600, 3),  # the server would drop the higher bits
    ],
)
def test_probes_take_whole_seconds_rounded_up(
    interval: int | str, timeout: int | str, period: int, seconds: int, tries: int
) -> None:
    container = server(healthCheck=HealthCheckSpec("/ready?deep=1", interval, timeout))
    probe = {
        "httpGet": {"path": "/ready?deep=1", "port": "http", "scheme": "HTTP"},
        "periodSeconds": period,
        "timeoutSeconds": seconds,
    }
    assert container["readinessProbe"] == container["livenessProbe"] == probe
    assert container["startupProbe"] == {**probe, "failureThreshold": tries}


@given(st.integers(1, 2**53))
def test_a_probe_is_never_shorter_than_asked_for(nanoseconds: int) -> None:
    seconds = whole_seconds(nanoseconds)
    assert 0 <= seconds * 10**9 - nanoseconds < 10**9
    startup = server(healthCheck=HealthCheckSpec("/", nanoseconds, nanoseconds))["startupProbe"]
    assert startup["failureThreshold"] * startup["periodSeconds"] > STARTUP_SECONDS / 2


def test_what_was_rounded_is_named() -> None:
    assert rounding_notes(HealthCheckSpec()) == []
    assert rounding_notes(HealthCheckSpec("/", "1500ms", 1)) == [
        "healthCheck.interval 1500ms is rounded up to 2s",
        "healthCheck.timeout 1ns is rounded up to 1s",
    ]


def test_a_replica_runs_without_privileges() -> None:
    pod = manifest()["spec"]["template"]["spec"]
    assert not pod["automountServiceAccountToken"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert server()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_called_service_keeps_its_labels_and_states_the_weights() -> None:
    weights = (WeightedTarget("m-primary", 75), WeightedTarget("m-canary", 25))
    made = service_manifest(Service("m-svc", "media", REF.selector("primary"), weights), REF)
    annotations = {"vmafx.dev/weights": "m-primary=75,m-canary=25"}
    assert made["metadata"] == {"name": "m-svc", "labels": LABELS, "annotations": annotations}
    assert made["spec"] == {
        "selector": REF.selector("primary"),
        "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "http"}],
    }


def test_a_service_of_a_track_has_its_labels_and_no_weights() -> None:
    made = service_manifest(Service("m-primary", "media", REF.selector("primary")), REF)
    assert made["metadata"] == {"name": "m-primary", "labels": PRIMARY}


def test_an_autoscaler_targets_a_deployment() -> None:
    made = hpa_manifest(HPA("m-primary-hpa", "media", "m-primary", 2, 5), REF)
    assert made["metadata"] == {"name": "m-primary-hpa", "labels": LABELS}
    assert made["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "m-primary"}
    assert (made["spec"]["minReplicas"], made["spec"]["maxReplicas"]) == (2, 5)


def test_a_budget_covers_the_pods_of_a_track() -> None:
    made = budget_manifest(Deployment("m-canary", "media", 3, "model:2"), REF)
    assert made["spec"] == {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",  # replicas that are not ready protect nothing
        "selector": {"matchLabels": REF.selector("canary")},
    }


names = st.from_regex(r"\A[a-z]([-a-z0-9]{0,20}[a-z0-9])?-(primary|canary)\Z")


@given(st.lists(st.builds(WeightedTarget, names, st.integers(0, 100)), max_size=3).map(tuple))
def test_weights_are_read_as_written(weights: tuple[WeightedTarget, ...]) -> None:
    assert parse_weights(weights_text(weights)) == weights


@pytest.mark.parametrize("text", ["", ",", "a", "a=", "a=x", "a=1=2", "a=1;b=2"])
def test_invalid_weights_are_none(text: str) -> None:
    assert parse_weights(text) == ()


def test_images_are_pulled_with_the_secrets_of_the_operator() -> None:
    options = ServingOptions("registry.example.com/serving:1", pull_secrets=("registry",))
    assert manifest(options=options)["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert "imagePullSecrets" not in manifest()["spec"]["template"]["spec"]
