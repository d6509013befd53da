"""The cluster of `make e2e` itself: what product tests rely on, and that nothing is left of it."""

import json
import socket
import subprocess
import urllib.request
from typing import Any

import pytest

from tests.e2e.cluster import NODES, PROBE_IMAGE, Cluster
from tests.support.waiting import until
from vmafx.api.hardware import HARDWARE

pytestmark = pytest.mark.cluster

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}


class Namespace:
    """kubectl in the namespace of a test."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(f"--namespace={self.name}", *arguments, stdin=stdin).stdout

    def apply(self, *bodies: dict[str, Any]) -> None:
        content = {"apiVersion": "v1", "kind": "List", "items": list(bodies)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(content))

    def run(self, name: str, *arguments: str, phase: str = "Succeeded", **spec: Any) -> str:
        """Run a Pod to its end; returns its logs."""
        return self.run_pod(pod(name, *arguments, **spec), phase)

    def run_pod(self, body: dict[str, Any], phase: str = "Succeeded") -> str:
        name = body["metadata"]["name"]
        self.apply(body)
        self.kubectl("wait", f"--for=jsonpath={{.status.phase}}={phase}", f"pod/{name}", "--timeout=60s")
        return self.kubectl("logs", name)

    def get(self, *arguments: str) -> Any:
        return self.cluster.get(f"--namespace={self.name}", *arguments)

    def pods(self) -> list[Any]:
        """The Pods that are not about to end."""
        return [one for one in self.get("pods")["items"] if "deletionTimestamp" not in one["metadata"]]

    def hosts(self) -> list[str]:
        """The nodes of the Pods that are Ready."""
        return sorted(one["spec"]["nodeName"] for one in self.pods() if is_ready(one))


def is_ready(body: Any) -> bool:
    conditions = body["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def pod(name: str, *arguments: str, limits: dict[str, int] | None = None, **spec: Any) -> dict[str, Any]:
    container = {
        "name": "probe",
        "image": PROBE_IMAGE,
        "args": list(arguments),
        "securityContext": RESTRICTED,
        "resources": {"limits": limits or {}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container], **spec,
        },
    }  # fmt: skip


def web(replicas: int) -> list[dict[str, Any]]:
    """A Deployment, spread over the nodes, and its Service on port 80."""
    labels = {"app": "web"}
    template = pod("web", "serve", "8080", restartPolicy="Always")
    template["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}
    template["spec"]["topologySpreadConstraints"] = [
        {
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": labels},
        },
    ]  # fmt: skip
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
    }
    service = {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec},
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": service},
    ]


@pytest.fixture
def namespace(e2e_cluster: Cluster, e2e_namespace: str) -> Namespace:
    return Namespace(e2e_cluster, e2e_namespace)


def test_both_nodes_are_ready(e2e_cluster: Cluster) -> None:
    nodes = e2e_cluster.get("nodes")["items"]
    assert [node["metadata"]["name"] for node in nodes] == list(NODES)
    assert all(is_ready(node) for node in nodes)
    assert {node["status"]["nodeInfo"]["containerRuntimeVersion"].partition(":")[0] for node in nodes} == {"containerd"}


def test_a_pod_under_restricted_pod_security_leaves_its_result(namespace: Namespace) -> None:
    labels = [f"pod-security.kubernetes.io/{mode}=restricted" for mode in ("enforce", "warn")]
    namespace.kubectl("label", "namespace", namespace.name, *labels)
    assert namespace.run("result", "exit", "3", "a score", phase="Failed") == "a score\n"
    (status,) = namespace.get("pod", "result")["status"]["containerStatuses"]
    assert (status["state"]["terminated"]["exitCode"], status["state"]["terminated"]["message"]) == (3, "a score")


def test_a_service_is_found_by_name_and_reaches_pods_on_both_nodes(namespace: Namespace) -> None:
    namespace.apply(*web(replicas=2))
    namespace.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert namespace.hosts() == list(NODES)
    names = {one["metadata"]["name"] for one in namespace.pods()}
    for node in NODES:  # 40 requests all to one of two Pods: once in 10^12
        answers = namespace.run(f"ask-{node}", "get", "40", "http://web", nodeName=node)
        assert set(answers.split()) == names
    address = namespace.run("lookup", "lookup", f"web.{namespace.name}.svc.cluster.local").strip()
    assert address == namespace.get("service", "web")["spec"]["clusterIP"]
    outside = namespace.run("outside", "lookup", "example.com", phase="Failed")
    assert "no such host" in outside


def test_the_test_machine_reaches_services(namespace: Namespace) -> None:
    namespace.apply(*web(replicas=1))
    namespace.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    (name,) = [one["metadata"]["name"] for one in namespace.pods()]
    with (
        namespace.cluster.forward(f"web.{namespace.name}.svc.cluster.local", 80) as address,
        urllib.request.urlopen(f"http://{address}", timeout=30) as answer,
    ):
        assert answer.read().decode().strip() == name
    script = f"import urllib.request as u; print(u.urlopen('http://web.{namespace.name}', timeout=30).read().decode())"
    command = namespace.cluster.command(["python3", "-c", script])
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip() == name
    address = namespace.get("service", "web")["spec"]["clusterIP"]
    command = namespace.cluster.command(["python3", "-c", script.replace(f"web.{namespace.name}", address)], "node-2")
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip() == name


def test_exec_and_logs_and_port_forward(namespace: Namespace) -> None:
    namespace.apply(pod("web", "serve", "8080"))
    namespace.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
    assert namespace.kubectl("exec", "web", "--", "/probe", "get", "2", "http://127.0.0.1:8080") == "web\nweb\n"
    assert namespace.kubectl("logs", "web") == ""
    cluster = namespace.cluster
    command = [str(cluster.kubectl_path), f"--kubeconfig={cluster.kubeconfig}", f"--namespace={namespace.name}"]
    command += ["port-forward", "pod/web", ":8080"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forward:
        try:
            assert forward.stdout is not None
            port = forward.stdout.readline().split(":")[1].split()[0]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=30) as answer:
                assert answer.read() == b"web\n"
        finally:
            forward.terminate()


@pytest.mark.parametrize("resource", sorted(one.resource for one in HARDWARE.values() if one.resource))
def test_a_gpu_request_lands_on_the_node_that_offers_it(namespace: Namespace, resource: str) -> None:
    namespace.apply(pod("gpu", "env", "E2E_DEVICES", limits={resource: 2}))
    reason = '--for=jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}=Unschedulable'
    namespace.kubectl("wait", reason, "pod/gpu", "--timeout=60s")
    with namespace.cluster.device_plugin("node-2", resource, count=2):
        namespace.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/gpu", "--timeout=60s")
        assert namespace.get("pod", "gpu")["spec"]["nodeName"] == "node-2"
        device = resource.partition(".")[0]
        assert namespace.kubectl("logs", "gpu") == f"{device}-0,{device}-1\n"


def test_an_unhealthy_device_is_not_offered_and_a_kubelet_restart_keeps_the_others(namespace: Namespace) -> None:
    cluster = namespace.cluster
    with cluster.device_plugin("node-1", "nvidia.com/gpu", count=3) as plugin:
        plugin.set_unhealthy("nvidia-1")
        until(lambda: cluster.allocatable("node-1", "nvidia.com/gpu") == 2, "the device is not offered", 60)
        with cluster.node_loss("node-1"):
            pass
        until(lambda: cluster.allocatable("node-1", "nvidia.com/gpu") == 2, "the plugin has registered again", 60)


@pytest.mark.parametrize("unplug", [False, True], ids=["kubelet killed", "unplugged"])
def test_pods_of_a_lost_node_are_replaced_and_the_node_returns(namespace: Namespace, unplug: bool) -> None:
    namespace.apply(*web(replicas=2))
    namespace.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert namespace.hosts() == ["node-1", "node-2"]
    (address,) = [one["status"]["podIP"] for one in namespace.pods() if one["spec"]["nodeName"] == "node-2"]
    connect = ["python3", "-c", f"import socket; socket.create_connection(('{address}', 8080), timeout=5)"]
    with namespace.cluster.node_loss("node-2", unplug=unplug):
        done = subprocess.run(namespace.cluster.command(connect), capture_output=True, timeout=60, check=False)
        assert (done.returncode == 0) == (not unplug), done.stderr
        namespace.cluster.wait_for_node("node-2", ready=False)
        until(lambda: namespace.hosts() == ["node-1", "node-1"], "the Pods are on the other node", 90)
        answers = namespace.run("ask", "get", "20", "http://web", nodeName="node-1").split()
        assert set(answers) == {one["metadata"]["name"] for one in namespace.pods() if is_ready(one)}
    until(lambda: len(namespace.get("pods", "--selector=app=web")["items"]) == 2, "the lost node's Pods are gone", 90)


def test_a_drained_node_is_empty(namespace: Namespace) -> None:
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    namespace.apply(*web(replicas=4), budget)
    namespace.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    assert namespace.hosts() == ["node-1", "node-1", "node-2", "node-2"]
    namespace.kubectl("drain", "node-1", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s")
    try:
        until(lambda: namespace.hosts() == ["node-2"] * 4, "all Pods are on the other node", 60)
    finally:
        namespace.kubectl("uncordon", "node-1")


def test_an_image_is_pulled_from_the_registry(namespace: Namespace) -> None:
    reference = f"{namespace.cluster.registry}/tests/probe:1"
    socket_path = namespace.cluster.nodes["node-1"].folder / "containerd.sock"
    for arguments in (["tag", "--force", PROBE_IMAGE, reference], ["push", "--plain-http", reference]):
        command = ["ctr", f"--address={socket_path}", "--namespace=k8s.io", "images", *arguments]
        subprocess.run(namespace.cluster.command(command), capture_output=True, timeout=60, check=True)
    body = pod("pulled", "exit", "0", "pulled", nodeName="node-2")
    body["spec"]["containers"][0] |= {"image": reference, "imagePullPolicy": "Always"}
    assert namespace.run_pod(body) == "pulled\n"
    (status,) = namespace.get("pod", "pulled")["status"]["containerStatuses"]
    assert status["imageID"].startswith(f"{namespace.cluster.registry}/tests/probe@sha256:")


def test_a_claim_gets_a_volume_that_pods_on_both_nodes_see(namespace: Namespace) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "files"}, "spec": spec}
    namespace.apply(claim)
    for node, arguments in (("node-1", ["write", "/files/a", "text\n"]), ("node-2", ["read", "/files/a"])):
        body = pod(f"on-{node}", *arguments, nodeName=node)
        body["spec"]["volumes"] = [{"name": "files", "persistentVolumeClaim": {"claimName": "files"}}]
        body["spec"]["containers"][0]["volumeMounts"] = [{"name": "files", "mountPath": "/files"}]
        shown = namespace.run_pod(body)
    assert shown == "text\n"


def test_nothing_in_the_cluster_reaches_this_machine(namespace: Namespace) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert "dial tcp" in namespace.run("ask", "get", "1", url, phase="Failed")
        assert "dial tcp" in namespace.run("ask-node", "get", "1", url, phase="Failed", hostNetwork=True)
    shown = subprocess.run(["hostname", "-I"], capture_output=True, text=True, timeout=30, check=True).stdout
    for address in (one for one in shown.split() if ":" not in one):
        for node in (None, *NODES):
            command = namespace.cluster.command(["ip", "route", "get", address], node)
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            assert "unreachable" in done.stderr, f"{address} from {node or 'the control plane'}: {done.stdout}"


def test_commands_in_the_cluster_do_not_use_the_proxies_of_this_machine(
    e2e_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for node in (None, "node-1"):
        command = e2e_cluster.command(["env"], node)
        shown = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
        assert "PATH=" in shown
        assert "proxy" not in shown.lower()
