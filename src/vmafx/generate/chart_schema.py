"""values.schema.json of the Helm chart: what its values may be. Nothing else is allowed."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import inspect as types

from vmafx.api.hardware import Vendor
from vmafx.api.node import AGENT_NAME, VmafxNodeSpec
from vmafx.api.schema import object_schema, portable
from vmafx.generate.chart_values import SCHEMA, ChartError, Value
from vmafx.generate.environment import SECTIONS
from vmafx.settings import declared

# The vendors of the chart, with the suffix of the image's tag for their GPUs.
VARIANTS: dict[Vendor, str] = {"nvidia": "-cuda", "amd": "-rocm", "intel": "-xpu", "cpu": ""}
WORKLOAD_SECTIONS = ("Scoring", "`vmaf-tune`", "`vmafx serve`", "`vmafx mcp`")  # of docs/environment.md
AGENT_SECTIONS = ("Scoring", "Worker", "Agent")
# Of the operator's variables, those that clients also set for a whole release.
OPERATOR_VARIABLES = ("VMAFX_OPERATOR_", "VMAFX_CONTROLLER_")
# Not among them: the Role for the Lease is in the release's namespace.
LEASE_NAMESPACE = "VMAFX_OPERATOR_LEASE_NAMESPACE"
PREFIX = "VMAFX_"
Schema = dict[str, Any]


def schema(values: Sequence[Value], pushgateway: Sequence[Value] = ()) -> Schema:
    """The JSON Schema of the values; no other keys are allowed."""
    properties = _properties(values)
    if pushgateway:
        own = _properties(pushgateway)
        properties["pushgateway"]["properties"] |= own | {"global": {"type": "object"}}
    # Helm adds it to the values of subcharts.
    properties["global"] = {"type": "object", "description": "Values of all charts of a release; this chart has none."}
    out: Schema = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Values of the chart"}
    out |= {"type": "object", "additionalProperties": False, "properties": properties}
    if pushgateway:
        _dependent_values(properties)
    else:
        properties["enabled"] = {"type": "boolean"}
    return out | {"$defs": _definitions()}


def _properties(values: Sequence[Value]) -> Schema:
    return {value.path[-1]: _schema_of(value) for value in values}


def _schema_of(value: Value) -> Schema:
    if value.children:
        own = {"type": "object", "additionalProperties": False, "properties": _properties(value.children)}
        return {"description": value.text, **own} if value.text else own
    out: Schema = {"description": value.text}
    if "$ref" not in value.keywords and "enum" not in value.keywords:
        out |= _type_of(value)
    return out | value.keywords


def _type_of(value: Value) -> Schema:
    match value.default:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer", "minimum": 0}
        case str():
            return {"type": "string"}
    if "type" not in value.keywords:
        raise ChartError(f"{'.'.join(value.path)}: its default does not show its type: write `{SCHEMA}{{type: …}}`")
    return {"minimum": 0} if "integer" in value.keywords["type"] else {}


def _dependent_values(properties: Schema) -> None:
    """Values that exclude each other."""
    # As `anyOf`, the message of an error names both ways out.
    properties["operator"]["anyOf"] = [
        {"properties": {"leaderElect": {"const": True}}},
        {"properties": {"replicas": {"maximum": 1}}},
    ]
    properties["podDisruptionBudget"]["anyOf"] = [
        {"properties": {"maxUnavailable": {"type": "null"}}},
        {"properties": {"minAvailable": {"type": "null"}}},
    ]
    properties["auth"]["anyOf"] = [
        {"properties": {"mode": {"enum": ["none", "token"]}}},
        {"properties": {"keysSecret": {"minLength": 1}}},
    ]
    properties["controller"]["anyOf"] = [
        {"properties": {"clientCASecret": {"maxLength": 0}}},
        {"properties": {"tls": {"properties": {"secretName": {"minLength": 1}}}}},
    ]


def _definitions() -> Schema:
    string, objects = {"type": "string"}, {"type": "array", "items": {"type": "object"}}
    name = {**string, "pattern": "^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$"}
    path = {"type": "object", "additionalProperties": False, "required": ["path"]}
    path["properties"] = {
        "path": {**string, "pattern": "^/"},
        "pathType": {"enum": ["Prefix", "Exact", "ImplementationSpecific"]},
    }
    host = {"host": {**string, "minLength": 1}, "paths": {"type": "array", "items": path}}
    quantity = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"
    return {
        "object": {"type": "object"},
        "objects": objects,
        "secrets": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name"],
                "properties": {"name": {**string, "minLength": 1}},
            },
        },
        "strings": {"type": "array", "items": string},
        "cidrs": {
            "type": "array",
            "items": {**string, "pattern": r"^([0-9]+(\.[0-9]+){3}|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*)/[0-9]+$"},
        },
        "command": {"type": "array", "items": string, "minItems": 1},
        "stringMap": {"type": "object", "additionalProperties": string},
        "name": name,
        "label": {**string, "pattern": "^([a-z0-9]([-a-z0-9]{0,51}[a-z0-9])?)?$"},
        "path": {**string, "pattern": "^/"},
        "port": {"type": "integer", "minimum": 1, "maximum": 65535},
        "unprivilegedPort": {"type": "integer", "minimum": 1024, "maximum": 65535},
        "quantity": {"type": ["string", "integer"], "pattern": quantity, "minimum": 0},
        "size": {**string, "pattern": r"^[1-9][0-9]*(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"},
        "sizeOrNone": {**string, "pattern": r"^([1-9][0-9]*(\.[0-9]+)?(k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?)?$"},
        "promDuration": {**string, "minLength": 2, "pattern": "^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$"},
        "countOrPercent": {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+%$"},
        "schedule": {**string, "pattern": r"^(@[a-z]+( \S+)?|\S+( +\S+){4})?$"},
        "accessModes": {
            "type": "array",
            "minItems": 1,
            "items": {"enum": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]},
        },
        "variables": _variables(WORKLOAD_SECTIONS, operator_variables()),
        "ingressHosts": {
            "type": "array",
            "items": {"type": "object", "additionalProperties": False, "required": ["host"], "properties": host},
        },
        "agentVariables": _variables(AGENT_SECTIONS),
        "agentPool": _agent_pool(objects),
        "node": _node(),
    }


def operator_variables() -> dict[str, str]:
    """The defaults of the operator's variables that may be among those of the release."""
    found = [setting for group in SECTIONS["Operator"] for setting in declared(group).values()]
    return {
        one.variable: one.default
        for one in found
        if one.variable.startswith(OPERATOR_VARIABLES) and one.variable != LEASE_NAMESPACE
    }


def _variables(sections: Sequence[str], more: Iterable[str] = ()) -> Schema:
    """Variables by name: those of vmafx in these sections of docs/environment.md, these ones, and any others."""
    scalar = {"type": ["string", "number", "boolean"]}
    groups = [group for section in sections for group in SECTIONS[section]]
    found = {setting.variable for group in groups for setting in declared(group).values()} | set(more)
    known = sorted(variable for variable in found if variable.startswith(PREFIX))
    # Every name that does not begin with PREFIX; the patterns of Helm have no lookahead.
    others = [f"{PREFIX[:i]}([^{letter}]|$)" for i, letter in enumerate(PREFIX)]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": dict.fromkeys(known, scalar),
        "patternProperties": {f"^({'|'.join(others)})": scalar},
    }


def _agent_pool(objects: Schema) -> Schema:
    string, labels = {"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}
    image = {"repository": string, "tag": string}
    properties = {
        "kind": {"enum": ["StatefulSet", "DaemonSet"]},
        "vendor": {"enum": list(VARIANTS)},
        "replicas": {"type": "integer", "minimum": 0},
        "gpus": {"type": "integer", "minimum": 1},
        "capacity": {"type": "integer", "minimum": 0},
        "image": {"type": "object", "additionalProperties": False, "properties": image},
        "labels": labels,
        "nodeNames": {"type": "array", "items": {**string, "pattern": f"^{AGENT_NAME.pattern}$"}},
        "resources": {"type": "object"},
        "env": {"$ref": "#/$defs/agentVariables"},
        "nodeSelector": labels,
        "affinity": {"type": "object"},
        "priorityClassName": string,
        "runtimeClassName": string,
        "podLabels": labels,
        "podAnnotations": labels,
        "serviceAccountAnnotations": labels,
    }
    properties |= dict.fromkeys(
        (
            "extraEnv",
            "extraEnvFrom",
            "extraVolumes",
            "extraVolumeMounts",
            "tolerations",
            "topologySpreadConstraints",
        ),
        objects,
    )
    # A DaemonSet has as many Pods as there are Kubernetes nodes.
    without = {"properties": {"kind": {"const": "DaemonSet"}}, "required": ["kind"]}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "if": without,
        "then": {"properties": {"replicas": False}},
    }


def _node() -> Schema:
    """The spec of a VmafxNode, with labels; only its own fields."""
    spec = types.type_info(VmafxNodeSpec)
    if not isinstance(spec, types.StructType):
        raise TypeError(f"{VmafxNodeSpec} is not a Struct")
    out: Schema = _closed(portable(object_schema(spec, defaults=False)))
    out["properties"]["labels"] = {"type": "object", "additionalProperties": {"type": "string"}}
    return out


def _closed(part: Any) -> Any:
    """A schema whose objects have no other fields, without descriptions."""
    if isinstance(part, list):
        return [_closed(one) for one in part]
    if not isinstance(part, dict):
        return part
    out = {name: _closed(one) for name, one in part.items() if not (name == "description" and isinstance(one, str))}
    return out | {"additionalProperties": False} if isinstance(part.get("properties"), dict) else out
