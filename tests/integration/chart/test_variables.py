"""The variables of containers: each once, and with the value that the user has chosen."""

from typing import Any

import pytest

from tests.integration.chart.test_options import EVERYTHING
from tests.support.chart import WORKLOADS, Manifest, environment, find, pod_templates, refused, render

OVERRIDES: dict[str, Any] = {
    "env": {"VMAFX_BACKEND": "cuda", "HOME": "/home/x", "B": "env"},
    "extraEnv": [
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "TMPDIR", "value": "/t"},
    ],
    "operator": {"enabled": True, "extraEnv": [{"name": "VMAFX_OPERATOR_LOG_LEVEL", "value": "debug"}]},
    "controller": {"extraEnv": [{"name": "VMAFX_LOG_LEVEL", "value": "debug"}]},
    "agents": {
        "pools": {"a": {"env": {"VMAFX_BACKEND": "auto"}, "extraEnv": [{"name": "VMAFX_BACKEND", "value": "cuda"}]}}
    },
}


def effective(manifests: list[Manifest], kind: str, name: str) -> dict[str, str]:
    """The variables of the first container that have a value, those of ConfigMaps too."""
    container = find(manifests, kind, name)["spec"]["template"]["spec"]["containers"][0]
    found: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        if "configMapRef" in source:
            found |= find(manifests, "ConfigMap", source["configMapRef"]["name"])["data"]
    return found | environment(container)


@pytest.mark.parametrize("values", [OVERRIDES, EVERYTHING], ids=["overrides", "everything"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_each_variable_is_there_once(values: dict[str, Any], workload: str) -> None:
    """Server-side apply refuses two entries of one name."""
    for name, template in pod_templates(render({**values, "workload": workload})):
        for container in template["spec"]["containers"]:
            names = [entry["name"] for entry in container.get("env", ())]
            assert len(names) == len(set(names)), name


def test_the_last_source_of_a_variable_wins() -> None:
    manifests = render(OVERRIDES)
    server = effective(manifests, "Deployment", "vmafx")
    assert (server["VMAFX_BACKEND"], server["HOME"], server["TMPDIR"]) == ("cuda", "/home/x", "/t")
    (entry,) = [
        one
        for one in find(manifests, "Deployment", "vmafx")["spec"]["template"]["spec"]["containers"][0]["env"]
        if one["name"] == "B"
    ]
    assert "valueFrom" in entry
    assert effective(manifests, "Deployment", "vmafx-operator")["VMAFX_OPERATOR_LOG_LEVEL"] == "debug"
    assert effective(manifests, "Deployment", "vmafx-controller")["VMAFX_LOG_LEVEL"] == "debug"


@pytest.mark.parametrize(
    ("workload", "name", "value"),
    [
        ("Deployment", "VMAFX_BACKEND", "auto"),
        ("Deployment", "VMAFX_MODEL_DIR", "/output/models"),
        ("Job", "VMAFX_OUTPUT_DIR", "/output/reports"),
        ("Job", "VMAFX_MEDIA_ROOTS", "/corpus/public"),
        ("Deployment", "VMAFX_SERVE_GRACE", "1"),
        ("StatefulSet", "VMAFX_MCP_STATE", "/var/lib/vmafx/other"),
    ],
)
def test_config_overrides_what_the_chart_sets(workload: str, name: str, value: str) -> None:
    values = {"workload": workload, "persistence": {"enabled": True, "models": {"enabled": True}}}
    manifests = render({**values, "config": {name: value}})
    (object_name,) = [one["metadata"]["name"] for one in manifests if one["kind"] == workload]
    assert effective(manifests, workload, object_name)[name] == value
    manifests = render({**values, "config": {name: value}, "env": {name: "/of-env"}})
    (object_name,) = [one["metadata"]["name"] for one in manifests if one["kind"] == workload]
    assert effective(manifests, workload, object_name)[name] == "/of-env"


FOR_THE_OPERATOR = {
    "VMAFX_OPERATOR_METRICS_ADDR": ":9081",
    "VMAFX_OPERATOR_PROBE_ADDR": ":9082",
    "VMAFX_OPERATOR_LEADER_ELECT": "true",
    "VMAFX_OPERATOR_LOG_LEVEL": "debug",
    "VMAFX_CONTROLLER_GRPC_ADDR": "vmafx-controller.video.svc.cluster.local:9090",
    "VMAFX_CONTROLLER_HTTP_ADDR": "http://vmafx-controller.video.svc.cluster.local:8080",
}


@pytest.mark.parametrize("place", ["config", "env"])
def test_variables_of_the_operator_reach_it(place: str) -> None:
    manifests = render({"operator": {"enabled": True}, place: FOR_THE_OPERATOR, "networkPolicy": {"enabled": True}})
    variables = effective(manifests, "Deployment", "vmafx-operator")
    assert {name: variables[name] for name in FOR_THE_OPERATOR} == FOR_THE_OPERATOR
    container = find(manifests, "Deployment", "vmafx-operator")["spec"]["template"]["spec"]["containers"][0]
    assert [port["containerPort"] for port in container["ports"]] == [9081, 9082]
    (rule,) = find(manifests, "NetworkPolicy", "vmafx-operator")["spec"]["ingress"]
    assert [port["port"] for port in rule["ports"]] == [9081, 9082]
    service = find(manifests, "Service", "vmafx-operator")["spec"]["ports"]
    assert [(port["port"], port["targetPort"]) for port in service] == [(8081, "metrics"), (8082, "probes")]


def test_the_ports_of_the_operator_follow_its_own_variables() -> None:
    extra = [{"name": "VMAFX_OPERATOR_METRICS_ADDR", "value": ":9999"}]
    given = {"operator": {"enabled": True, "extraEnv": extra}, "config": {"VMAFX_OPERATOR_METRICS_ADDR": ":9081"}}
    manifests = render(given)
    assert effective(manifests, "Deployment", "vmafx-operator")["VMAFX_OPERATOR_METRICS_ADDR"] == ":9999"
    container = find(manifests, "Deployment", "vmafx-operator")["spec"]["template"]["spec"]["containers"][0]
    assert [port["containerPort"] for port in container["ports"]] == [9999, 8082]


def test_a_batch_job_has_a_variable_that_is_not_for_it() -> None:
    manifests = render({"workload": "Job", "env": {"PORT": 9999}})
    (name,) = [one["metadata"]["name"] for one in manifests if one["kind"] == "Job"]
    assert effective(manifests, "Job", name)["PORT"] == "9999"


def test_values_of_the_operator_take_precedence() -> None:
    own = {"logLevel": "warn", "leaderElect": True, "controllerAddress": "http://own:8080"}
    given = {
        "VMAFX_OPERATOR_LOG_LEVEL": "debug",
        "VMAFX_OPERATOR_LEADER_ELECT": "false",
        "VMAFX_CONTROLLER_HTTP_ADDR": "x",
    }
    manifests = render({"operator": {"enabled": True, **own}, "config": given})
    variables = effective(manifests, "Deployment", "vmafx-operator")
    assert variables["VMAFX_OPERATOR_LOG_LEVEL"] == "warn"
    assert variables["VMAFX_OPERATOR_LEADER_ELECT"] == "true"
    assert variables["VMAFX_CONTROLLER_HTTP_ADDR"] == "http://own:8080"


@pytest.mark.parametrize("address", ["0", ":80", "localhost"])
def test_the_operator_needs_its_ports(address: str) -> None:
    given = {"operator": {"enabled": True}, "config": {"VMAFX_OPERATOR_METRICS_ADDR": address}}
    assert f'VMAFX_OPERATOR_METRICS_ADDR is "{address}": name a port from 1024, such as :8081' in refused(given)
