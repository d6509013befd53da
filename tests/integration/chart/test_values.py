"""Wrong values are refused with a line that names them; the others have an effect."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.chart import CHART, VENDORS, WORKLOADS, environment, find, helm, pod_templates, refused, render
from vmafx.api.node import AGENT_NAME
from vmafx.devcluster import DevCluster
from vmafx.inference import manifests as inference
from vmafx.operator.training import manifests as trainer
from vmafx.scoring.media.policy import MediaPolicy

GATEWAY = {"parentRefs": [{"name": "public"}], "enabled": True}
SHARED = {"accessModes": ["ReadWriteMany"]}
MUTUAL_TLS = {"tls": {"secretName": "tls"}, "clientCASecret": "ca"}
DIGEST = f"sha256:{'a' * 64}"


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"gpu": {"vendor": "voodoo"}}, "at '/gpu/vendor': value must be one of 'nvidia', 'amd', 'intel', 'cpu'"),
        ({"gpu": {"count": -1}}, "at '/gpu/count': minimum: got -1, want 1"),
        ({"deployment": {"replicaCount": -2}}, "at '/deployment/replicaCount': minimum: got -2, want 0"),
        ({"operator": {"replicas": -1}}, "at '/operator/replicas': minimum: got -1, want 0"),
        (
            {"workload": ["Deployment", "Job"]},
            "at '/workload': value must be one of 'Deployment', 'Job', 'StatefulSet'",
        ),
        ({"replicas": 3}, "additional properties 'replicas' not allowed"),
        ({"gpu": {"vendors": "nvidia"}}, "at '/gpu': additional properties 'vendors' not allowed"),
        ({"image": {"tag": 1.2}}, "at '/image/tag': got number, want string"),
        (
            {"image": {"tag": "1-operator"}},
            "image.tag is 1-operator, an image with the operator alone: set operator.image",
        ),
        ({"config": {"VMAFX_LOGLEVEL": "debug"}}, "at '/config': additional properties 'VMAFX_LOGLEVEL' not allowed"),
        (
            {"operator": {"enabled": True}, "config": {"VMAFX_OPERATOR_LEASE_NAMESPACE": "kube-system"}},
            "at '/config': additional properties 'VMAFX_OPERATOR_LEASE_NAMESPACE' not allowed",
        ),
        (
            {"env": {"VMAFX_SERVE_HTTP_LISTEN": ":9999"}},
            "env has VMAFX_SERVE_HTTP_LISTEN: set service.targetPort instea",
        ),
        ({"config": {"PORT": 9999}}, "config has PORT: set service.targetPort instead"),
        (
            {"extraEnv": [{"name": "VMAFX_SERVE_AUTH", "value": "token"}]},
            "extraEnv has VMAFX_SERVE_AUTH: set auth.mode",
        ),
        (
            {"workload": "StatefulSet", "env": {"VMAFX_MCP_CLUSTER": "true"}},
            "env has VMAFX_MCP_CLUSTER: set statefulSet.cluster instead",
        ),
        ({"env": {"VMAFX_THREADZ": 4}}, "at '/env': additional properties 'VMAFX_THREADZ' not allowed"),
        ({"persistence": {"corpus": {"size": "lots"}}}, "at '/persistence/corpus/size': 'lots' does not match pattern"),
        ({"operator": {"replicas": 2}}, "at '/operator/leaderElect': value must be true"),
        ({"auth": {"mode": "keys"}}, "at '/auth/keysSecret': minLength"),
        ({"nodes": {"a": {"gpuVendor": "voodoo"}}}, "at '/nodes/a/gpuVendor': value must be one of 'amd', 'apple'"),
        ({"nodes": {"a": {"capacity": 1}}}, "at '/nodes/a': missing property 'gpuVendor'"),
        (
            {"nodes": {"a": {"gpuVendor": "cpu", "podTemplate": {"hostNetwork": True}}}},
            "at '/nodes/a/podTemplate': additional properties 'hostNetwork' not allowed",
        ),
        ({"agents": {"pools": {"a": {"vendr": "amd"}}}}, "at '/agents/pools/a': additional properties 'vendr' not all"),
        ({"pushgateway": {"replicas": 2}}, "at '/pushgateway': additional properties 'replicas' not allowed"),
        (
            {"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}},
            "at '/podDisruptionBudget/minAvailable': got number, want null",
        ),
        ({"controller": {"clientCASecret": "ca"}}, "at '/controller/tls/secretName': minLength"),
        ({"workload": "Job", "autoscaling": {"enabled": True}}, "autoscaling.enabled is for the workload Deployment"),
        (
            {"autoscaling": {"enabled": True}, "resources": {"requests": {"cpu": None}}},
            "autoscaling aims at a percentage of the cpu request, and there is none: set resources.requests.cpu",
        ),
        (
            {"workload": "Job", "podDisruptionBudget": {"enabled": True}},
            "podDisruptionBudget.enabled is for the workloads",
        ),
        ({"workload": "Job", "job": {"timeZone": "Europe/Berlin"}}, "job.timeZone is for a CronJob: set job.schedule"),
        ({"fullnameOverride": "n" * 41}, "at '/fullnameOverride': maxLength: got 41, want 40"),
        (
            {"service": {"loadBalancerClass": "a"}},
            "service.loadBalancerClass is for service.type LoadBalancer, not Clust",
        ),
        (
            {"controller": {"enabled": True, "service": {"externalTrafficPolicy": "Local"}}},
            "controller.service.externalTrafficPolicy is for controller.service.type LoadBalancer or NodePort",
        ),
        ({"ingress": {"enabled": True}}, "ingress.hosts is empty: name a host"),
        ({"workload": "Job", "httpRoute": GATEWAY}, "httpRoute.enabled needs a workload with a Service"),
        ({"agents": {"pools": {"a": {}}}}, "agents.pools needs the controller: set operator.enabled"),
        (
            {"controller": {"enabled": True, **MUTUAL_TLS}, "agents": {"pools": {"a": {}}}},
            "with controller.clientCASecret, agents need a client certificate: set VMAFX_AGENT_CERT",
        ),
        (
            {"operator": {"enabled": True}, "agents": {"pools": {"a": {"gpus": 2}}}},
            "agents.pools.a.gpus is for the GPUs of a vendor: set agents.pools.a.vendor",
        ),
        (
            {"operator": {"enabled": True}, "agents": {"pools": {"a": {"env": {"VMAFX_AGENT_LABELS": "rack=b"}}}}},
            "VMAFX_AGENT_LABELS is in env of a pool of agents: set labels of the pool instead",
        ),
        ({"service": {"targetPort": 9090}}, "service.targetPort and service.grpcPort are both 9090"),
        ({"service": {"port": 9090}}, "service.port and service.grpcPort are both 9090"),
        ({"terminationGracePeriodSeconds": 3}, "terminationGracePeriodSeconds (3) is less than deployment.drainSec"),
        (
            {"networkPolicy": {"allow": {"cidrs": ["nonsense"]}}},
            "at '/networkPolicy/allow/cidrs/0': 'nonsense' does not mat",
        ),
        ({"job": {"schedule": "x"}}, "at '/job/schedule': 'x' does not match pattern"),
        ({"deployment": {"maxUnavailable": "abc"}}, "at '/deployment/maxUnavailable': 'abc' does not match pattern"),
        ({"deployment": {"maxSurge": 0}}, "deployment.maxUnavailable and deployment.maxSurge are both 0"),
        ({"deployment": {"maxSurge": "0%"}}, "deployment.maxUnavailable and deployment.maxSurge are both 0"),
        (
            {"monitoring": {"enabled": True, "serviceMonitor": {"interval": "5s"}}},
            "monitoring.serviceMonitor.scrapeTimeout (10s) is longer than the interval (5s)",
        ),
    ],
)
def test_a_wrong_value_is_refused(values: dict[str, Any], error: str) -> None:
    assert error in refused(values)


@pytest.mark.parametrize(
    "flags", [["gpu.vendor=voodoo"], ["gpu.count=-1"], ["gpu.unknown=1"], ["workload={Deployment,Job}"]]
)
def test_nothing_is_installed_with_a_wrong_value(cluster: DevCluster, namespace: str, flags: list[str]) -> None:
    arguments = ["install", "vmafx", str(CHART), "--namespace", namespace, *(f"--set={flag}" for flag in flags)]
    done = helm(*arguments, kubeconfig=cluster.kubeconfig)
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr
    assert f"at '/{flags[0].partition('=')[0].partition('.')[0]}" in done.stderr
    releases = helm("list", "--all-namespaces", "--short", kubeconfig=cluster.kubeconfig)
    assert (releases.returncode, releases.stdout.strip()) == (0, "")


def images(values: dict[str, Any]) -> dict[str, str]:
    """The image of each Pod by its component, and VMAFX_WORKER_IMAGE as `worker`."""
    found = {}
    for name, template in pod_templates(render(values, "--skip-tests")):
        (container,) = template["spec"]["containers"]
        found[name] = container["image"]
        if "VMAFX_WORKER_IMAGE" in environment(container):
            found["worker"] = environment(container)["VMAFX_WORKER_IMAGE"]
    return found


OPERATOR, CONTROLLER, SERVER = "deployment-vmafx-operator", "deployment-vmafx-controller", "deployment-vmafx"


@pytest.mark.parametrize(
    ("values", "operator", "others", "server"),
    [
        ({}, "vmafx-operator:0.1.0", "vmafx-operator:0.1.0", "vmafx-operator:0.1.0"),
        ({"operator": {"image": {"tag": "dev"}}}, "vmafx-operator:dev", "vmafx-operator:dev", "vmafx-operator:dev"),
        ({"image": {"tag": "dev"}}, "vmafx-operator:dev", "vmafx-operator:dev", "vmafx-operator:dev"),
        (
            {"operator": {"image": {"tag": "dev"}}, "gpu": {"vendor": "amd"}},
            "vmafx-operator:dev", "vmafx-operator:dev", "vmafx-operator:dev-rocm",
        ),
        ({"image": {"tag": "mine"}, "gpu": {"vendor": "amd"}}, *["vmafx-operator:mine"] * 3),
        ({"gpu": {"vendor": "nvidia", "enabled": False}}, *["vmafx-operator:0.1.0"] * 3),
        (
            {"image": {"repository": "r.example/v", "tag": "1"}, "operator": {"image": {"tag": "1-operator"}}},
            "r.example/v:1-operator", "r.example/v:1", "r.example/v:1",
        ),
        (
            {"operator": {"image": {"tag": "dev-operator"}}, "gpu": {"vendor": "amd"}},
            "vmafx-operator:dev-operator", "vmafx-operator:dev", "vmafx-operator:dev-rocm",
        ),
        (
            {"image": {"repository": "r.example/v"}, "operator": {"image": {"digest": DIGEST}}},
            *[f"r.example/v@{DIGEST}"] * 3,
        ),
        (
            {"image": {"repository": "r.example/v"}, "operator": {"image": {"repository": "o", "digest": DIGEST}}},
            f"o@{DIGEST}", "r.example/v:0.1.0", "r.example/v:0.1.0",
        ),
        ({"operator": {"image": {"digest": DIGEST}}}, *[f"vmafx-operator@{DIGEST}"] * 3),
        (
            {"operator": {"image": {"repository": "r.example/v", "digest": DIGEST}}, "gpu": {"vendor": "amd"}},
            f"r.example/v@{DIGEST}", f"r.example/v@{DIGEST}", "r.example/v:0.1.0-rocm",
        ),
        (
            {"operator": {"image": {"tag": "1-operator", "digest": DIGEST}}},
            f"vmafx-operator@{DIGEST}", "vmafx-operator:1", "vmafx-operator:1",
        ),
        (
            {"image": {"tag": "1"}, "operator": {"image": {"digest": DIGEST}}},
            f"vmafx-operator@{DIGEST}", "vmafx-operator:1", "vmafx-operator:1",
        ),
        ({"image": {"repository": "r.example/v", "digest": DIGEST}}, *[f"r.example/v@{DIGEST}"] * 3),
    ],
)  # fmt: skip
def test_the_images(values: dict[str, Any], operator: str, others: str, server: str) -> None:
    enabled = {**values, "operator": {**values.get("operator", {}), "enabled": True}}
    assert images(enabled) == {OPERATOR: operator, CONTROLLER: others, "worker": others, SERVER: server}


@pytest.mark.parametrize(("vendor", "variant"), [("nvidia", "-cuda"), ("amd", "-rocm"), ("intel", "-xpu"), ("cpu", "")])
def test_nodes_and_agents_have_the_image_of_their_vendor(vendor: str, variant: str) -> None:
    given = {
        "operator": {"enabled": True},
        "image": {"tag": "dev"},
        "imagePullSecrets": [{"name": "registry"}],
        "nodes": {
            "a": {"gpuVendor": vendor, "capacity": 2, "labels": {"rack": "a"}},
            "b": {"gpuVendor": vendor, "image": "b:1"},
        },
        "agents": {"pools": {"p": {"vendor": vendor} | ({"gpus": 2} if vendor != "cpu" else {})}},
    }
    manifests = render(given)
    image = f"vmafx-operator:dev{variant}"
    node = find(manifests, "VmafxNode", "a")
    assert node["metadata"]["labels"]["rack"] == "a"
    secrets = {"imagePullSecrets": [{"name": "registry"}]}
    assert node["spec"] == {"gpuVendor": vendor, "capacity": 2, "image": image, "podTemplate": secrets}
    assert find(manifests, "VmafxNode", "b")["spec"]["image"] == "b:1"
    (container,) = find(manifests, "StatefulSet", "vmafx-agent-p")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == image
    gpus = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "gpu.intel.com/i915"}.get(vendor)
    assert container.get("resources", {}) == ({"limits": {gpus: "2"}} if gpus else {})


def test_a_suffix_replaces_that_of_another_vendor() -> None:
    given = {
        "operator": {"enabled": True},
        "image": {"tag": "1-cuda"},
        "nodes": {"a": {"gpuVendor": "amd"}, "b": {"gpuVendor": "nvidia"}},
        "agents": {"pools": {"p": {"vendor": "intel", "image": {"repository": "own"}}}},
    }
    manifests = render(given)
    assert find(manifests, "VmafxNode", "a")["spec"]["image"] == "vmafx-operator:1-rocm"
    assert find(manifests, "VmafxNode", "b")["spec"]["image"] == "vmafx-operator:1-cuda"
    (container,) = find(manifests, "StatefulSet", "vmafx-agent-p")["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "own:1-xpu"


def test_agents_with_a_certificate_of_their_own_are_accepted_where_all_callers_need_one() -> None:
    pool = {"env": {"VMAFX_AGENT_CERT": "/tls/tls.crt", "VMAFX_AGENT_KEY": "/tls/tls.key"}}
    assert render({"controller": {"enabled": True, **MUTUAL_TLS}, "agents": {"pools": {"a": pool}}})


@pytest.mark.parametrize(
    ("secret", "protocols"),
    [("", {"http": None, "grpc": "kubernetes.io/h2c"}), ("tls", {"http": "https", "grpc": None})],
)
def test_a_service_says_which_of_its_ports_have_tls(secret: str, protocols: dict[str, str | None]) -> None:
    service = find(render({"tls": {"secretName": secret}}), "Service", "vmafx")
    assert {port["name"]: port.get("appProtocol") for port in service["spec"]["ports"]} == protocols
    mcp = render({"workload": "StatefulSet", "tls": {"secretName": secret}})
    for name in ("vmafx", "vmafx-headless"):
        (port,) = find(mcp, "Service", name)["spec"]["ports"]
        assert port.get("appProtocol") == protocols["http"]


def test_pods_may_be_killed_at_once() -> None:
    manifests = render({"terminationGracePeriodSeconds": 0, "deployment": {"drainSeconds": 0}})
    assert find(manifests, "Deployment", "vmafx")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 0


@pytest.mark.parametrize("interval", ["30s", "1m30s", "1h", "10500ms"])
def test_intervals_of_prometheus(interval: str) -> None:
    monitoring = {"enabled": True, "serviceMonitor": {"interval": interval}}
    (monitor,) = [one for one in render({"monitoring": monitoring}) if one["kind"] == "ServiceMonitor"]
    assert monitor["spec"]["endpoints"][0]["interval"] == interval


def test_a_service_monitor_finds_its_service_whatever_labels_the_values_have() -> None:
    common = {"app.kubernetes.io/name": "house", "app.kubernetes.io/part-of": "studio"}
    manifests = render({"commonLabels": common, "operator": {"enabled": True}, "monitoring": {"enabled": True}})
    monitors = [one for one in manifests if one["kind"] == "ServiceMonitor"]
    assert len(monitors) == 3
    for monitor in monitors:
        labels = find(manifests, "Service", monitor["metadata"]["name"])["metadata"]["labels"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert labels["app.kubernetes.io/part-of"] == "studio"


@pytest.mark.parametrize("namespaced", [False, True])
def test_what_the_operator_creates_is_scraped(namespaced: bool) -> None:
    monitoring = {"enabled": True, "serviceMonitor": {"labels": {"release": "prometheus"}}}
    manifests = render({"operator": {"enabled": True}, "namespaced": namespaced, "monitoring": monitoring})
    for name, labels, port in (
        ("trainers", trainer.labels("t"), trainer.PORT_NAME),
        ("inference", inference.labels({}), inference.PORT_NAME),
    ):
        monitor = find(manifests, "PodMonitor", f"vmafx-{name}")
        assert monitor["metadata"]["labels"]["release"] == "prometheus"
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert monitor["spec"].get("namespaceSelector") == (None if namespaced else {"any": True})
        assert [one["port"] for one in monitor["spec"]["podMetricsEndpoints"]] == [port]


def test_the_dashboard_finds_a_release_of_any_name() -> None:
    """By the names of metrics and the namespace: the job of a server is its Service, whose name the values choose."""
    text = (CHART / "files" / "dashboard.json").read_text()
    queries = re.findall(r'"(?:expr|query)": "(.*)"', text)
    assert len(queries) > 20
    assert [query for query in queries if "job=" in query] == []


@pytest.mark.parametrize("own", [False, True])
def test_the_pushgateway_is_scraped_once(own: bool) -> None:
    gateway = {"enabled": True, "serviceMonitor": {"enabled": own}}
    manifests = render({"workload": "Job", "pushgateway": gateway, "monitoring": {"enabled": True}})
    (endpoint,) = find(manifests, "ServiceMonitor", "vmafx-pushgateway")["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["honorLabels"]) == ("http", True)
    selector = find(manifests, "ServiceMonitor", "vmafx-pushgateway")["spec"]["selector"]["matchLabels"]
    assert selector.items() <= find(manifests, "Service", "vmafx-pushgateway")["metadata"]["labels"].items()


@pytest.mark.parametrize(
    ("values", "alerts"),
    [
        ({"workload": "Job"}, None),
        ({"workload": "Job", "operator": {"enabled": True}}, {"VmafxReconcileErrors"}),
        (
            {"workload": "Job", "controller": {"enabled": True}, "monitoring": {"enabled": True}},
            {"VmafxControllerDown"},
        ),
        (
            {"operator": {"enabled": True}, "monitoring": {"enabled": True}},
            {"VmafxOperatorDown", "VmafxControllerDown", "VmafxServerRefusesRequests"},
        ),
        (
            {"operator": {"enabled": True, "serviceMonitor": {"enabled": True}}},
            {"VmafxOperatorDown", "VmafxServerRefusesRequests"},
        ),
    ],
)
def test_alerts_are_about_what_runs_and_is_scraped(values: dict[str, Any], alerts: set[str] | None) -> None:
    monitoring = {**values.get("monitoring", {}), "prometheusRule": {"enabled": True}}
    rules = [one for one in render({**values, "monitoring": monitoring}) if one["kind"] == "PrometheusRule"]
    if alerts is None:
        assert rules == []
        return
    (group,) = rules[0]["spec"]["groups"]
    found = {rule["alert"] for rule in group["rules"]}
    assert alerts <= found
    down = {"VmafxOperatorDown", "VmafxControllerDown"}
    assert found & down == alerts & down


@pytest.mark.parametrize(
    ("namespaced", "jobs", "all_namespaces"), [(False, True, True), (False, False, False), (True, True, False)]
)
def test_worker_pods_of_other_namespaces_reach_the_controller(
    namespaced: bool, jobs: bool, all_namespaces: bool
) -> None:
    policy = {"enabled": True, "allow": {"jobs": jobs}}
    manifests = render({"operator": {"enabled": True}, "namespaced": namespaced, "networkPolicy": policy})
    for name in ("vmafx-controller", "vmafx-operator", "vmafx"):
        (rule,) = find(manifests, "NetworkPolicy", name)["spec"]["ingress"]
        assert ({"namespaceSelector": {}} in rule["from"]) == (all_namespaces and name == "vmafx-controller")


@pytest.mark.parametrize("namespaced", [False, True])
def test_the_pods_of_a_release_reach_each_other_also_if_the_others_of_the_namespace_do_not(namespaced: bool) -> None:
    given = {
        "workload": "Job",
        "operator": {"enabled": True},
        "namespaced": namespaced,
        "pushgateway": {"enabled": True},
        "networkPolicy": {"enabled": True, "allow": {"sameNamespace": False, "jobs": namespaced}},
    }
    manifests = render(given)
    own = {"podSelector": {"matchLabels": {"app.kubernetes.io/instance": "vmafx"}}}
    ports = {"vmafx-controller": [9090, 8080], "vmafx-operator": [8081, 8082], "vmafx-pushgateway": [9091]}
    for name, served in ports.items():
        spec = find(manifests, "NetworkPolicy", name)["spec"]
        (rule,) = spec["ingress"]
        jobs = namespaced and name == "vmafx-controller"
        assert rule["from"] == [{"podSelector": {}} if jobs else own], "worker Pods have no label of the release"
        assert [port["port"] for port in rule["ports"]] == served
        (labels,) = [one["metadata"]["labels"] for key, one in pod_templates(manifests) if key == f"deployment-{name}"]
        assert spec["podSelector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        ({"operator": {"controllerAddress": "https://vmafx.example.com"}}, [443]),
        ({"operator": {"controllerAddress": "http://vmafx.{namespace}.svc:8888/"}}, [8888]),
        ({"config": {"VMAFX_CONTROLLER_HTTP_ADDR": "http://vmafx.example.com:81"}}, [81]),
        ({"env": {"VMAFX_CONTROLLER_GRPC_ADDR": "vmafx.example.com:50051"}}, [50051]),
        ({"operator": {"controllerAddress": "http://a.b"}, "env": {"VMAFX_CONTROLLER_GRPC_ADDR": "a.b:1"}}, [80, 1]),
        ({}, []),
    ],
)
def test_the_operator_may_connect_to_a_controller_elsewhere(values: dict[str, Any], ports: list[int]) -> None:
    given = {**values, "operator": {"enabled": True, **values.get("operator", {})}, "networkPolicy": {"enabled": True}}
    rules = find(render(given), "NetworkPolicy", "vmafx-operator")["spec"]["egress"]
    expected = [{"ports": [{"port": port, "protocol": "TCP"} for port in ports]}] if ports else []
    assert rules[3:] == expected, "after those for DNS, the API server and the cluster"


@pytest.mark.parametrize(
    ("values", "checked"),
    [
        ({}, {"server", "operator", "controller"}),
        ({"deployment": {"replicaCount": 0}}, {"operator", "controller"}),
        (
            {"deployment": {"replicaCount": 0}, "autoscaling": {"enabled": True}, "controller": {"replicas": 0}},
            {"server", "operator"},
        ),
        ({"workload": "StatefulSet", "statefulSet": {"replicaCount": 0}, "operator": {"replicas": 0}}, {"controller"}),
    ],
)
def test_helm_test_checks_what_has_replicas(values: dict[str, Any], checked: set[str]) -> None:
    manifests = render({**values, "operator": {"enabled": True, **values.get("operator", {})}})
    assert {one["metadata"]["name"] for one in manifests if one["kind"] == "Pod"} == {
        f"vmafx-test-{part}" for part in checked
    }


def test_user_roles_come_with_the_controller_alone() -> None:
    assert find(render({"controller": {"enabled": True}}), "ClusterRole", "vmafx-client")


def test_the_intel_resource_reaches_the_workload_and_the_operator() -> None:
    values = {
        "gpu": {"vendor": "intel", "intelResource": "gpu.intel.com/xe", "count": 2},
        "operator": {"enabled": True},
    }
    manifests = render(values)
    server = find(manifests, "Deployment", "vmafx")["spec"]["template"]["spec"]
    assert server["containers"][0]["resources"]["limits"] == {"gpu.intel.com/xe": "2"}
    assert server["tolerations"] == [{"key": "gpu.intel.com/xe", "operator": "Exists", "effect": "NoSchedule"}]
    (operator,) = find(manifests, "Deployment", "vmafx-operator")["spec"]["template"]["spec"]["containers"]
    assert environment(operator)["VMAFX_INTEL_DEVICE"] == "gpu.intel.com/xe"


@pytest.mark.parametrize(
    ("leader_elect", "replicas", "strategy"),
    [(False, 1, "Recreate"), (False, 0, "Recreate"), (True, 3, "RollingUpdate")],
)
def test_the_operator_without_an_election_is_never_there_twice(
    leader_elect: bool, replicas: int, strategy: str
) -> None:
    values = {"operator": {"enabled": True, "leaderElect": leader_elect, "replicas": replicas}}
    spec = find(render(values), "Deployment", "vmafx-operator")["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (replicas, strategy)


def test_volumes_and_their_variables() -> None:
    values = {"persistence": {"enabled": True, "storageClass": "fast", "models": {"enabled": True}}}
    values["persistence"]["output"] = {"existingClaim": "reports", "mountPath": "/out"}
    manifests = render(values)
    claims = [one for one in manifests if one["kind"] == "PersistentVolumeClaim"]
    assert [one["metadata"]["name"] for one in claims] == ["vmafx-corpus", "vmafx-models"]
    assert {one["spec"]["storageClassName"] for one in claims} == {"fast"}
    (container,) = find(manifests, "Deployment", "vmafx")["spec"]["template"]["spec"]["containers"]
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert mounts == {"/scratch": False, "/corpus": True, "/out": False, "/models": True}
    variables = environment(container)
    assert variables["VMAFX_MEDIA_ROOTS"] == "/corpus:/models"
    assert (variables["VMAFX_OUTPUT_DIR"], variables["VMAFX_MODEL_DIR"]) == ("/out", "/models")


@pytest.mark.parametrize("size", ["", "1", "10k", "10M", "10G", "1.5Gi", "2T", "1Pi", "500Mi"])
def test_a_size_of_the_scratch_volume_is_one_of_the_code(size: str) -> None:
    manifests = render({"scratch": {"sizeLimit": size}})
    (container,) = find(manifests, "Deployment", "vmafx")["spec"]["template"]["spec"]["containers"]
    MediaPolicy.from_environ(environment(container))


@pytest.mark.parametrize(
    ("persistence", "strategy"),
    [
        ({}, "RollingUpdate"),
        ({"enabled": True}, "Recreate"),
        ({"enabled": True, "corpus": {"enabled": False}, "output": {"accessModes": ["ReadWriteOncePod"]}}, "Recreate"),
        ({"enabled": True, "output": {"existingClaim": "mine"}, "corpus": {"enabled": False}}, "Recreate"),
        ({"enabled": True, "output": {"enabled": False}, "corpus": {"accessModes": ["ReadOnlyMany"]}}, "RollingUpdate"),
        ({"enabled": True, "output": SHARED, "corpus": SHARED}, "RollingUpdate"),
    ],
)
def test_a_pod_does_not_wait_for_a_volume_of_the_pod_that_waits_for_it(
    persistence: dict[str, Any], strategy: str
) -> None:
    spec = find(render({"persistence": persistence}), "Deployment", "vmafx")["spec"]
    assert spec["strategy"]["type"] == strategy
    rolling = {"maxUnavailable": 0, "maxSurge": 1}
    assert spec["strategy"].get("rollingUpdate") == (rolling if strategy == "RollingUpdate" else None)


def test_claims_of_the_mcp_server_have_the_annotations_and_the_retention_of_the_values() -> None:
    state = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    values = {"workload": "StatefulSet", "persistence": {"enabled": True, "annotations": {"a": "b"}, "state": state}}
    spec = find(render(values), "StatefulSet", "vmafx")["spec"]
    (claim,) = spec["volumeClaimTemplates"]
    assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep", "a": "b"}
    assert spec["persistentVolumeClaimRetentionPolicy"] == state


def test_a_finished_batch_job_stays_so_that_an_upgrade_does_not_run_it_again() -> None:
    (job,) = [one for one in render({"workload": "Job"}) if one["kind"] == "Job"]
    assert "ttlSecondsAfterFinished" not in job["spec"]
    (job,) = [
        one for one in render({"workload": "Job", "job": {"ttlSecondsAfterFinished": 60}}) if one["kind"] == "Job"
    ]
    assert job["spec"]["ttlSecondsAfterFinished"] == 60


def test_a_pool_of_agents_has_stable_names_or_a_pod_on_each_node() -> None:
    """A VmafxNode has the name of its agent: a random name would leave an unhealthy VmafxNode after each update."""
    name = f"vmafx-agent-a-{'0' * 47}"
    pools = {"a": {"nodeNames": ["vmafx-agent-a-0", name[:63]]}, "b": {"kind": "DaemonSet"}}
    manifests = render({"operator": {"enabled": True}, "agents": {"pools": pools}})
    spec = find(manifests, "StatefulSet", "vmafx-agent-a")["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    (entry,) = [one for one in container["env"] if one["name"] == "VMAFX_AGENT_NAME"]
    assert entry["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    assert find(manifests, "DaemonSet", "vmafx-agent-b")
    error = refused({"operator": {"enabled": True}, "agents": {"pools": {"a": {"kind": "Deployment"}}}})
    assert "at '/agents/pools/a/kind': value must be one of 'StatefulSet', 'DaemonSet'" in error


def test_pools_are_spread_over_the_kubernetes_nodes() -> None:
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    pools = {"a": {"replicas": 2, "topologySpreadConstraints": [spread]}}
    spec = find(render({"operator": {"enabled": True}, "agents": {"pools": pools}}), "StatefulSet", "vmafx-agent-a")[
        "spec"
    ]
    assert spec["template"]["spec"]["topologySpreadConstraints"] == [{**spread, "labelSelector": spec["selector"]}]


def test_agents_have_the_identity_of_a_cloud() -> None:
    identity = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/clips"}
    pools = {"a": {"serviceAccountAnnotations": identity}, "b": {}}
    manifests = render({"operator": {"enabled": True}, "agents": {"pools": pools}})
    assert find(manifests, "ServiceAccount", "vmafx-agent-a")["metadata"]["annotations"] == identity
    assert "annotations" not in find(manifests, "ServiceAccount", "vmafx-agent-b")["metadata"]


def test_the_pods_of_hooks_start_in_a_cluster_whose_nodes_are_all_tainted() -> None:
    where = {"nodeSelector": {"pool": "small"}, "tolerations": [{"operator": "Exists"}]}
    given = {"operator": {"enabled": True}, "agents": {"pools": {"a": {}}}, "crds": {"upgrade": True}, "hooks": where}
    manifests = render(given)
    hooks = [one for one in manifests if "helm.sh/hook" in one["metadata"].get("annotations", {})]
    specs = {name: template["spec"] for name, template in pod_templates(hooks)}
    assert {name.removeprefix("job-vmafx-") for name in specs} == {
        "crds", "uninstall", "pod-vmafx-test-server", "pod-vmafx-test-operator", "pod-vmafx-test-controller",
    }  # fmt: skip
    for spec in specs.values():
        assert {key: spec[key] for key in where} == where
        assert spec["containers"][0]["resources"] == {"requests": {"cpu": "50m", "memory": "64Mi"}}


def test_pools_with_long_names_have_names_of_their_own() -> None:
    pools: dict[str, Any] = {"gpu-a10": {}, "gpu-a100": {}, "short": {}}
    values = {"operator": {"enabled": True}, "agents": {"pools": pools}, "networkPolicy": {"enabled": True}}
    release = f"vmafx-{'r' * 33}"
    manifests = render(values, release=release)
    for kind in ("StatefulSet", "ServiceAccount", "NetworkPolicy"):
        found = {one["metadata"]["name"] for one in manifests if one["kind"] == kind}
        names = {name for name in found if name.startswith(f"{release}-age")}
        assert len(names) == 3
        assert max(map(len, names)) <= 52
        assert f"{release}-agent-short" in names


def agent_name(command: list[str], machine: str, folder: Path) -> str:
    """The name that the command of a DaemonSet's Pods gives the agent on a machine."""
    (folder / "vmafx").write_text("#!/bin/sh\necho $VMAFX_AGENT_NAME\n")
    (folder / "vmafx").chmod(0o755)
    environ = {"PATH": f"{folder}:/usr/bin:/bin", "NODE_NAME": machine}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def test_the_nodes_of_machines_with_long_names_are_of_one_pool_and_one_machine(tmp_path: Path) -> None:
    pools = {"a": {"kind": "DaemonSet"}, "ab": {"kind": "DaemonSet"}}
    manifests = render({"operator": {"enabled": True}, "agents": {"pools": pools}})
    commands = {
        pool: find(manifests, "DaemonSet", f"vmafx-agent-{pool}")["spec"]["template"]["spec"]["containers"][0][
            "command"
        ]
        for pool in pools
    }
    assert agent_name(commands["a"], "ip-10-0-0-1.example.com", tmp_path) == "ip-10-0-0-1-example-com-a"
    machines = [f"{'m' * 61}{end}" for end in ("", ".example.com", ".example.org")]
    names = {agent_name(command, machine, tmp_path) for command in commands.values() for machine in machines}
    assert len(names) == 6
    assert all(AGENT_NAME.fullmatch(name) for name in names), names


def test_variables_keep_their_digits_and_the_direct_ones_win() -> None:
    values = {"config": {"VMAFX_SERVE_QUEUE": 12345678, "A": True}, "env": {"VMAFX_BACKEND": "auto", "B": 0.5}}
    manifests = render(values)
    assert find(manifests, "ConfigMap", "vmafx")["data"] == {"VMAFX_SERVE_QUEUE": "12345678", "A": "true"}
    (container,) = find(manifests, "Deployment", "vmafx")["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"configMapRef": {"name": "vmafx"}}]
    assert environment(container)["VMAFX_BACKEND"] == "auto"
    assert environment(container)["B"] == "0.5"


def test_a_changed_batch_job_is_another_job_and_an_unchanged_one_the_same() -> None:
    def name(*arguments: str) -> str:
        (job,) = [one for one in render({"workload": "Job", "job": {"args": list(arguments)}}) if one["kind"] == "Job"]
        return str(job["metadata"]["name"])

    assert name("compare", "a.mkv") == name("compare", "a.mkv") != name("compare", "b.mkv")


def test_a_schedule_makes_a_cron_job_that_pushes_to_the_pushgateway() -> None:
    values = {"workload": "Job", "job": {"schedule": "0 3 * * *", "args": ["compare", "/corpus/a.mkv"]}}
    manifests = render({**values, "pushgateway": {"enabled": True}}, release="nightly")
    spec = find(manifests, "CronJob", "nightly-vmafx")["spec"]
    (container,) = spec["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert (container["command"], container["args"]) == (["vmaf-tune"], ["compare", "/corpus/a.mkv"])
    assert environment(container)["VMAFX_PUSHGATEWAY"] == "http://nightly-pushgateway:9091"
    service = find(manifests, "Service", "nightly-pushgateway")
    assert service["spec"]["ports"][0]["port"] == 9091


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("vendor", VENDORS)
def test_clients_find_the_controller_whatever_the_release_is_called(vendor: str, workload: str) -> None:
    values = {"workload": workload, "gpu": {"vendor": vendor}, "operator": {"enabled": True}}
    manifests = render(values, release="another", namespace="team")
    ports = {port["name"]: port["port"] for port in find(manifests, "Service", "vmafx-controller")["spec"]["ports"]}
    assert ports == {"grpc": 9090, "http": 8080}
    (operator,) = find(manifests, "Deployment", "vmafx-operator")["spec"]["template"]["spec"]["containers"]
    address = "http://vmafx-controller.team.svc.cluster.local:8080"
    assert environment(operator)["VMAFX_CONTROLLER_HTTP_ADDR"] == address


def test_the_chart_without_values_can_be_packaged(tmp_path: Path) -> None:
    done = helm("package", str(CHART), "--destination", str(tmp_path))
    assert done.returncode == 0, done.stderr
    done = helm("template", "vmafx", str(tmp_path / "vmafx-0.1.0.tgz"), "--include-crds")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("kind: CustomResourceDefinition") == 4
