"""Every value that the chart accepts changes something that it renders."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.integration.chart.test_options import EVERYTHING, SERVED
from tests.support.chart import CHART, WORKLOADS, helm
from tests.support.project import ROOT
from vmafx.generate import chart
from vmafx.generate.chart_values import Value, leaves, read_values

VALUES = list(leaves(read_values((ROOT / chart.CHART / "values.yaml").read_text())))
GATEWAY = [
    msgspec.structs.replace(value, path=("pushgateway", *value.path))
    for value in leaves(read_values((ROOT / chart.PUSHGATEWAY / "values.yaml").read_text()))
]
# Other values, by the name of a definition of the schema; else by the type of the default.
SAMPLES: dict[str, Any] = {
    "label": "changed", "stringMap": {"changed": "yes"}, "strings": ["changed"], "command": ["changed"],
    "objects": [{"name": "changed"}], "object": {"changed": {}}, "variables": {"CHANGED": "yes"},
    "quantity": "7Gi", "size": "7Gi", "sizeOrNone": "7Gi", "path": "/changed", "promDuration": "7s",
    "port": 7777, "countOrPercent": 7, "secrets": [{"name": "changed"}], "schedule": "0 4 * * *",
    "unprivilegedPort": 7777, "accessModes": ["ReadWriteMany"], "cidrs": ["7.0.0.0/8"],
    "ingressHosts": [{"host": "changed"}],
}  # fmt: skip
OWN: dict[str, Any] = {
    "agents.pools": {"changed": {}}, "nodes": {"changed": {"gpuVendor": "cpu"}}, "extraObjects": [{"changed": 1}],
    "service.externalTrafficPolicy": "Cluster",
    "image.digest": f"sha256:{'c' * 64}", "operator.image.digest": f"sha256:{'c' * 64}", "service.nodePort": 30777,
    "operator.serving.gateway": "a/changed", "networkPolicy.allow.namespaces": [{"changed": "yes"}],
    "networkPolicy.allow.apiServerPorts": [7777], "networkPolicy.allow.internetPorts": [7777],
    "podSecurityContext.supplementalGroups": [77], "podDisruptionBudget.maxUnavailable": 7,
    "job.activeDeadlineSeconds": 77, "operator.image.pullPolicy": "Always", "operator.replicas": 7,
    "autoscaling.maxReplicas": 7, "autoscaling.minReplicas": 3, "gpu.vendor": "amd",
    "monitoring.serviceMonitor.interval": "1m",
}  # fmt: skip
# What another value has to be, for this one to have an effect.
BESIDE: dict[str, dict[str, Any]] = {
    "podDisruptionBudget.maxUnavailable": {"podDisruptionBudget": {"minAvailable": None}},
    "gpu.intelResource": {"gpu": {"vendor": "intel"}},
    "auth.keysSecret": {"auth": {"mode": "keys"}},
    "job.timeZone": {"job": {"schedule": "0 3 * * *"}},
    "job.concurrencyPolicy": {"job": {"schedule": "0 3 * * *"}},
    "deployment.replicaCount": {"autoscaling": {"enabled": False}},
    "operator.serviceMonitor.enabled": {"monitoring": {"enabled": False}},
    "controller.clientCASecret": {"controller": {"tls": {"secretName": "tls"}}},
    "nameOverride": {"fullnameOverride": ""},
}


def change_of(value: Value, base: dict[str, Any]) -> dict[str, Any]:
    """Values in which this one is not what it is in the base, and that the schema allows."""
    now: Any = base
    for name in value.path:
        now = now.get(name, {}) if isinstance(now, dict) else {}
    different = another(value) if now != another(value) else value.default
    return nested(value.path, different)


def another(value: Value) -> Any:
    """A value that is not the default."""
    name = ".".join(value.path)
    if name in OWN:
        return OWN[name]
    if "$ref" in value.keywords:
        return SAMPLES[value.keywords["$ref"].rpartition("/")[2]]
    if choices := value.keywords.get("enum"):
        return next(one for one in choices if one != value.default and one)
    match value.default:
        case bool():
            return not value.default
        case int():
            return value.default + 7
        case None if "boolean" in value.keywords["type"]:
            return False
        case None:
            return 7
    return "changed"


def merged(*values: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for one in values:
        for name, value in one.items():
            both = isinstance(value, dict) and isinstance(out.get(name), dict)
            out[name] = merged(out[name], value) if both else value
    return out


def nested(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    for name in reversed(path):
        value = {name: value}
    result: dict[str, Any] = value
    return result


def rendered(values: dict[str, Any], upgrade: str = "--is-upgrade") -> str:
    done = helm("template", "video", str(CHART), upgrade, values=values)
    return done.stdout if done.returncode == 0 else f"refused: {done.stderr}"


def bases(value: Value) -> Iterator[dict[str, Any]]:
    beside = BESIDE.get(".".join(value.path), {})
    alone = {"operator": {"enabled": True}, "agents": {"pools": {"a": {}}}, "nodes": {"a": {"gpuVendor": "intel"}}}
    everything = merged(EVERYTHING, SERVED, {"autoscaling": {"enabled": True}})
    found = [
        merged(EVERYTHING, {"workload": "Job"}, beside),
        merged(EVERYTHING, {"workload": "StatefulSet"}, beside),
        merged(everything, beside),
        merged(alone, beside),
        merged(alone, {"workload": "StatefulSet"}, beside),
        merged({"operator": {"enabled": True}}, beside),
    ]
    first = {"job": 0, "statefulSet": 1}.get(value.path[0], 2)
    yield found.pop(first)
    yield from found


_before: dict[str, str] = {}


@pytest.mark.parametrize("value", [*VALUES, *GATEWAY], ids=lambda value: ".".join(value.path))
def test_a_value_has_an_effect(value: Value) -> None:
    errors = []
    for base in bases(value):
        after = rendered(merged(base, change_of(value, base)))
        if after.startswith("refused"):
            errors.append(after)
            continue
        key = msgspec.json.encode(base).decode()
        before = _before.setdefault(key, "") or rendered(base)
        _before[key] = before
        assert not before.startswith("refused"), before
        if before != after:
            return
    raise AssertionError(f"{another(value)!r} changes nothing; {errors}")


@pytest.mark.parametrize("workload", WORKLOADS)
def test_null_is_an_empty_map_or_list(workload: str) -> None:
    """As `--set persistence.annotations=null` empties a default; all of them here at once."""
    needed = {("ingress", "hosts"), ("httpRoute", "parentRefs")}
    empty = [
        value for value in [*VALUES, *GATEWAY] if isinstance(value.default, dict | list) and value.path not in needed
    ]
    assert len(empty) > 80
    served = SERVED if workload != "Job" else {}
    tags = [nested(path, None) for path in (("image", "tag"), ("operator", "image", "tag"))]
    nulls = [*(nested(value.path, None) for value in empty), *tags]
    shown = rendered(merged(EVERYTHING, served, {"workload": workload}, *nulls))
    assert not shown.startswith("refused"), shown
