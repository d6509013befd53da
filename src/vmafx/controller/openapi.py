"""The HTTP API as OpenAPI 3.1, made from the wire's descriptors and the routes."""

import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from vmafx.controller.json_messages import is_map
from vmafx.controller.routes import ROUTES, CallRoute
from vmafx.http.responses import JSON, NDJSON

# By protobuf's mapping: 64 bits are a string, since not every reader of JSON has numbers that long.
SCALARS: dict[int, dict[str, str]] = {
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.TYPE_INT64: {"type": "string", "format": "int64"},
    FieldDescriptor.TYPE_DOUBLE: {"type": "number", "format": "double"},
}
ERROR = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {
        "code": {"type": "string", "description": "gRPC's name for what went wrong, such as NOT_FOUND."},
        "message": {"type": "string"},
    },
}
PAGES = {
    "/healthz": ("Whether agents' heartbeats can be written.", "text/plain"),
    "/readyz": ("Whether the controller can serve calls.", "text/plain"),
    "/metrics": ("Prometheus metrics.", "text/plain"),
    "/openapi.json": ("This description.", JSON),
}
UNAVAILABLE = {
    "/healthz": "Heartbeats cannot be written; the body says why.",
    "/readyz": "Not ready; the body says what is missing.",
}
# What the type of a field does not say.
FIELD_NOTES = {
    "Job.finalScore": "The VMAF score; left out unless the job is COMPLETED.",
}
_PARAMETER = re.compile(r"{(\w+)}")


def document() -> dict[str, Any]:
    """The whole description."""
    paths: dict[str, Any] = {path: {"get": _page(path)} for path in PAGES}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    kinds = {kind.name: kind for route in ROUTES for kind in _reachable(route)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "vmafx controller",
            "version": version("vmafx"),
            "description": "The calls of vmafx.controller.v1, over HTTP.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {name: _message(kinds[name]) for name in sorted(kinds)} | {"Error": ERROR},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
                "certificate": {"type": "mutualTLS"},
            },
        },
    }


def _page(path: str) -> dict[str, Any]:
    about, kind = PAGES[path]
    content = {kind: {"schema": {"type": "object" if kind == JSON else "string"}}}
    responses = {"200": {"description": about, "content": content}}
    if path in UNAVAILABLE:
        responses["503"] = {"description": UNAVAILABLE[path], "content": content}
    return {
        "operationId": re.sub(r"\W", "", path.partition(".")[0]),
        "summary": about,
        "security": [],
        "responses": responses,
    }


def _operation(route: CallRoute) -> dict[str, Any]:
    call = route.descriptor
    answer = NDJSON if call.server_streaming else JSON
    responses: dict[str, Any] = {
        str(route.status): {
            "description": call.output_type.name,
            "content": {answer: {"schema": _ref(call.output_type)}},
        },
        "default": {"description": "Why not.", "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}},
    }
    if route.location:
        schema = {"type": "string", "format": "uri-reference"}
        responses[str(route.status)]["headers"] = {"Location": {"description": "Where it is found.", "schema": schema}}
    operation: dict[str, Any] = {
        "operationId": route.call,
        "summary": route.about,
        "tags": ["agents" if route.path.startswith("/v1/nodes") else "clients"],
        "security": [{"token": []}, {"certificate": []}],
        "parameters": list(_parameters(route)),
        "responses": responses,
    }
    if route.method == "POST":
        operation["requestBody"] = {"content": {JSON: {"schema": _ref(call.input_type)}}}
    return operation


def _parameters(route: CallRoute) -> Iterator[dict[str, Any]]:
    fields = route.descriptor.input_type.fields_by_name
    for name in _PARAMETER.findall(route.path):
        yield {"name": name, "in": "path", "required": True, "schema": _field(fields[name])}
    for parameter, name in route.query().items():
        yield {"name": parameter, "in": "query", "schema": _field(fields[name])}


def _message(kind: Descriptor) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {field.json_name: _field(field) | _note(kind, field) for field in kind.fields},
        "additionalProperties": False,
    }


def _field(field: FieldDescriptor) -> dict[str, Any]:
    entry = field.message_type
    if entry is not None and is_map(entry):
        return {"type": "object", "additionalProperties": _one(entry.fields_by_name["value"])}
    return {"type": "array", "items": _one(field)} if field.is_repeated else _one(field)


def _note(kind: Descriptor, field: FieldDescriptor) -> dict[str, str]:
    note = FIELD_NOTES.get(f"{kind.name}.{field.json_name}")
    return {"description": note} if note else {}


def _one(field: FieldDescriptor) -> dict[str, Any]:
    if field.message_type is not None:
        return _ref(field.message_type)
    if field.enum_type is not None:
        enum: EnumDescriptor = field.enum_type
        return {"type": "string", "enum": [value.name for value in enum.values]}
    return dict(SCALARS[field.type])


def _ref(kind: Descriptor) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{kind.name}"}


def _reachable(route: CallRoute) -> Iterator[Descriptor]:
    call = route.descriptor
    waiting = [call.output_type, *([call.input_type] if route.method == "POST" else [])]
    while waiting:
        kind = waiting.pop()
        if not is_map(kind):
            yield kind
        waiting += [field.message_type for field in kind.fields if field.message_type is not None]
