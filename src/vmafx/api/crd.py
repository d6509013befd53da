"""The CustomResourceDefinition of each kind."""

from typing import Any

from msgspec import inspect as types

from vmafx.api.fields import RULES
from vmafx.api.meta import GROUP, VERSION, Column, CustomObject, Names
from vmafx.api.schema import Schema, cel_rules, object_schema, struct_fields, type_schema

CATEGORY = "vmafx"


def definition(kind: type[CustomObject]) -> dict[str, Any]:
    """The CRD manifest of a kind."""
    names, plural, singular = kind.names, kind.names.plural, kind.__name__.lower()
    version: dict[str, Any] = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": _subresources(names),
        "additionalPrinterColumns": [_printer_column(column) for column in names.columns],
        "schema": {"openAPIV3Schema": _root_schema(kind)},
    }
    if names.selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in names.selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.__name__,
                "listKind": f"{kind.__name__}List",
                "plural": plural,
                "singular": singular,
                "shortNames": [names.short],
                "categories": [CATEGORY],
            },
            "versions": [version],
        },
    }


def _root_schema(kind: type[CustomObject]) -> Schema:
    fields = {field.name: field.type for field in struct_fields(kind)}
    root = object_schema(types.StructType(cls=kind, fields=()), defaults=False)
    root["required"] = ["spec"]
    root["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": _metadata_schema(kind),
        "spec": type_schema(fields["spec"], defaults=True),
        # The server must not fill in a status: its defaults only apply when it is read.
        "status": type_schema(fields["status"], defaults=False),
    }
    return root


def _metadata_schema(kind: type[CustomObject]) -> Schema:
    """The server knows the fields of metadata; a schema can only limit the name."""
    if kind.name_rule is None:
        return {"type": "object"}
    return {"type": "object", "properties": {"name": {"type": "string", RULES: cel_rules([kind.name_rule])}}}


def _subresources(names: Names) -> dict[str, Any]:
    subresources: dict[str, Any] = {"status": {}}
    if names.scale:
        subresources["scale"] = {
            "specReplicasPath": names.scale.spec_replicas,
            "statusReplicasPath": names.scale.status_replicas,
            "labelSelectorPath": names.scale.selector,
        }
    return subresources


def _printer_column(column: Column) -> dict[str, Any]:
    printed: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    return {**printed, "priority": 1} if column.wide else printed
