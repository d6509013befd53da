"""Everything that can be turned on is accepted by a server that has the kinds of the Gateway API and Prometheus."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.integration.chart.test_combinations import assert_accepted, assert_restricted
from tests.support.chart import CHART, WORKLOADS, Manifest, environment, find, helm, pod_templates, render
from tests.support.chart_processes import Release
from tests.support.module_crds import module_crds
from vmafx.devcluster import DevCluster
from vmafx.http.errors import StatusError
from vmafx.http.hosts import HostPolicy, parse_hosts
from vmafx.operator.job.settings import JobSettings
from vmafx.settings import from_environ

EVERYTHING: dict[str, Any] = {
    "commonLabels": {"team": "video"},
    "commonAnnotations": {"example.com/owner": "video"},
    "imagePullSecrets": [{"name": "registry"}],
    "gpu": {"vendor": "nvidia", "count": 2},
    "config": {"VMAFX_LOG_LEVEL": "debug"},
    "env": {"VMAFX_THREADS": 4},
    "extraEnv": [{"name": "A", "value": "b"}],
    "extraEnvFrom": [{"secretRef": {"name": "clip-store", "optional": True}}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "extraInitContainers": [{"name": "first", "image": "i:1"}],
    "extraContainers": [{"name": "beside", "image": "i:1"}],
    "auth": {"mode": "keys", "keysSecret": "keys"},
    "tls": {"secretName": "tls"},
    "service": {
        "type": "LoadBalancer",
        "nodePort": 30080,
        "annotations": {"a": "b"},
        "loadBalancerClass": "example.com/inner",
        "loadBalancerSourceRanges": ["10.0.0.0/8"],
        "externalTrafficPolicy": "Local",
    },
    "scratch": {"sizeLimit": "10Gi", "medium": "Memory"},
    "podLabels": {"a": "b"},
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"a": "b"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "persistence": {"enabled": True, "storageClass": "-", "models": {"enabled": True}},
    "networkPolicy": {"enabled": True, "allow": {"namespaces": [{"a": "b"}], "cidrs": ["10.0.0.0/8"]}},
    "monitoring": {
        "enabled": True,
        "serviceMonitor": {"labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True},
        "dashboard": {"enabled": True},
    },
    "operator": {
        "enabled": True,
        "leaderElect": True,
        "replicas": 2,
        "podDisruptionBudget": {"enabled": True},
        "serving": {"gateway": "gateways/public", "image": "s:1"},
    },
    "controller": {
        "replicas": 2,
        "tls": {"secretName": "controller-tls"},
        "podDisruptionBudget": {"enabled": True},
        "service": {"type": "LoadBalancer"},
    },
    "agents": {
        "stateSizeLimit": "100Gi",
        "pools": {
            "l4": {"kind": "DaemonSet", "vendor": "nvidia", "nodeNames": ["gpu-1-l4"], "labels": {"rack": "a"}},
            "cpu": {"replicas": 3, "capacity": 2, "env": {"VMAFX_MEDIA_SCHEMES": "s3"}},
        },
    },
    "nodes": {"a": {"gpuVendor": "nvidia", "capacity": 2}, "b": {"gpuVendor": "cpu"}},
    "crds": {"upgrade": True},
    "pushgateway": {"enabled": True, "persistence": {"enabled": True}, "serviceMonitor": {"enabled": True}},
    "extraObjects": ["{apiVersion: v1, kind: ConfigMap, metadata: {name: '{{ .Release.Name }}-more'}}"],
}
SERVED = {  # for workloads with a Service
    "podDisruptionBudget": {"enabled": True, "minAvailable": "50%"},
    "ingress": {
        "enabled": True,
        "hosts": [{"host": "a.example.com", "paths": [{"path": "/x"}]}, {"host": "b.example.com"}],
        "tls": [{"hosts": ["a.example.com"], "secretName": "a"}],
    },
    "httpRoute": {
        "enabled": True,
        "parentRefs": [{"name": "public"}],
        "hostnames": ["c.example.com"],
        "timeouts": {"request": "300s"},
    },
    "hosts": ["d.example.com"],
}
KINDS_OF_OTHERS = {"HTTPRoute", "ServiceMonitor", "PodMonitor", "PrometheusRule"}


@pytest.fixture(scope="module")
def kinds_of_others(own_cluster: DevCluster, kubectl_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cluster has the CRDs of the Gateway API, of the Prometheus Operator and of vmafx."""
    folder = tmp_path_factory.mktemp("crds")
    server = Release(own_cluster, "default", kubectl_path, folder)
    (folder / "crds.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": module_crds()}))
    server.kubectl("apply", "--server-side", "-f", str(folder / "crds.json"), "-f", str(CHART / "crds"))
    server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    return folder


@pytest.mark.usefixtures("kinds_of_others")
@pytest.mark.parametrize("workload", WORKLOADS)
def test_everything_together_is_accepted(release: Release, workload: str) -> None:
    served = SERVED if workload != "Job" else {}
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 60}}
    more = {"targetMemoryUtilizationPercentage": 70, "behavior": behavior}
    scaling = {"autoscaling": {"enabled": True, **more}} if workload == "Deployment" else {}
    manifests = render({**EVERYTHING, **served, **scaling, "workload": workload}, namespace=release.namespace)
    assert_accepted(release.try_kubectl, manifests, release.namespace)
    for _, template in pod_templates(manifests):
        assert_restricted(template)
    assert KINDS_OF_OTHERS - {one["kind"] for one in manifests} == ({"HTTPRoute"} if workload == "Job" else set())
    for one in manifests:
        if "pushgateway" not in one["metadata"]["name"] and one["metadata"]["name"] != "vmafx-more":
            assert one["metadata"]["labels"]["team"] == "video", one["kind"]
            assert one["metadata"]["annotations"]["example.com/owner"] == "video", one["kind"]


def test_the_workload_answers_to_its_names_outside_the_cluster() -> None:
    manifests = render({**SERVED})
    (container,) = find(manifests, "Deployment", "vmafx")["spec"]["template"]["spec"]["containers"]
    hosts = "d.example.com,a.example.com,b.example.com,c.example.com"
    assert environment(container)["VMAFX_SERVE_HOSTS"] == hosts


@pytest.mark.parametrize("workload", ["Deployment", "StatefulSet"])
def test_the_workload_answers_to_its_names_inside_the_cluster(workload: str) -> None:
    """It refuses names that an attacker's page could have; those of its Services are not among them."""
    manifests = render({"workload": workload, "fullnameOverride": "scores"}, namespace="team")
    (container,) = find(manifests, workload, "scores")["spec"]["template"]["spec"]["containers"]
    variables = environment(container)
    hosts = variables.get("VMAFX_SERVE_HOSTS", "") or variables.get("VMAFX_MCP_HOSTS", "")
    policy = HostPolicy(parse_hosts(hosts))
    (check,) = [one for one in manifests if one["kind"] == "Pod"]
    url = urlsplit(check["spec"]["containers"][0]["args"][0])
    names = [url.hostname or "", "scores", "scores.team.svc", "scores.team.svc.cluster.local"]
    if workload == "StatefulSet":
        names += ["scores-0.scores-headless", "scores-1.scores-headless.team.svc.cluster.local"]
    for name in names:
        policy.check([name])
    with pytest.raises(StatusError):
        policy.check(["attacker.example.com"])


@pytest.mark.parametrize(
    ("values", "token"),
    [
        ({}, False),
        ({"auth": {"mode": "token"}}, True),
        ({"workload": "StatefulSet"}, False),
        ({"workload": "StatefulSet", "statefulSet": {"cluster": True}}, True),
        ({"workload": "Job", "auth": {"mode": "token"}}, False),
    ],
)
def test_only_who_needs_a_token_has_one(values: dict[str, Any], token: bool) -> None:
    manifests = render({**values, "operator": {"enabled": True}})
    mounted = {name: one["spec"]["automountServiceAccountToken"] for name, one in pod_templates(manifests)}
    expected = {name: name in {"deployment-vmafx-operator", "deployment-vmafx-controller"} for name in mounted}
    (workload,) = [
        one for one in mounted if one.split("-")[0] in {"deployment", "statefulset", "job"} and expected[one] is False
    ]
    assert mounted == expected | {workload: token}


def test_the_operator_pulls_images_with_the_secrets_of_the_release() -> None:
    given = {"operator": {"enabled": True}, "imagePullSecrets": [{"name": "a"}, {"name": "b"}]}
    (container,) = find(render(given), "Deployment", "vmafx-operator")["spec"]["template"]["spec"]["containers"]
    assert from_environ(JobSettings, environment(container)).pull_secrets == ("a", "b")


def test_agents_may_register_the_named_nodes_only() -> None:
    role = find(render(EVERYTHING), "Role", "vmafx-agent-l4")
    assert [rule["resourceNames"] for rule in role["rules"]] == [["gpu-1-l4"], ["gpu-1-l4"]]


@pytest.mark.usefixtures("kinds_of_others")
def test_another_user_and_groups(release: Release) -> None:
    """OpenShift chooses the users of Pods; device files of GPUs may need a group."""
    context = {"runAsUser": None, "runAsGroup": None, "fsGroup": None, "supplementalGroups": [44, 109]}
    manifests = render({"podSecurityContext": context, "operator": {"enabled": True}}, namespace=release.namespace)
    for _, template in pod_templates(manifests):
        assert template["spec"]["securityContext"] == {
            "runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, "supplementalGroups": [44, 109],
        }  # fmt: skip
    assert_accepted(release.try_kubectl, manifests, release.namespace)


def test_namespaced_releases_share_no_object() -> None:
    values = {**EVERYTHING, "namespaced": True, "auth": {"mode": "token"}}
    first, second = (
        {(one["kind"], one["metadata"]["name"]) for one in render(values, namespace=namespace) if _cluster_wide(one)}
        for namespace in (f"{'n' * 62}1", f"{'n' * 62}2")  # as long as names of namespaces may be
    )
    assert first
    assert not first & second


def _cluster_wide(manifest: Manifest) -> bool:
    return "namespace" not in manifest["metadata"] and manifest["metadata"]["name"] != "vmafx-more"


def test_every_rendered_combination_passes_the_linter_with_everything() -> None:
    done = helm("lint", "--strict", str(CHART), values={**EVERYTHING, **SERVED})
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.usefixtures("kinds_of_others")
def test_the_roles_of_a_namespace_have_what_is_in_namespaces_and_nothing_else(release: Release) -> None:
    of_cluster = set(release.kubectl("api-resources", "--namespaced=false", "--output=name").split())
    values = {"operator": {"enabled": True}, "namespaced": True, "rbac": {"userRoles": False}}
    roles = [one for one in render(values) if one["kind"] in {"Role", "ClusterRole"}]
    assert len(roles) == 4
    for role in roles:
        named = {
            f"{resource.partition('/')[0]}.{rule['apiGroups'][0]}".rstrip(".")
            for rule in role["rules"]
            for resource in rule["resources"]
        }
        found = named & of_cluster
        assert found == (named if role["kind"] == "ClusterRole" else set()), role["metadata"]["name"]
