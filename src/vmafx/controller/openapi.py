"""The HTTP API as an OpenAPI 3.1 document, built from the protobuf descriptors and the routes."""

import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from vmafx.controller.json_messages import is_map
from vmafx.controller.routes import ROUTES, CallRoute
from vmafx.http.responses import JSON, NDJSON

# In protobuf's mapping, 64-bit integers are strings, since many JSON parsers read numbers as doubles.
SCALARS: dict[int, dict[str, str]] = {
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "format": "byte"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.TYPE_INT64: {"type": "string", "format": "int64"},
    FieldDescriptor.TYPE_DOUBLE: {"type": "number", "format": "double"},
}
ERROR = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {
        "code": {"type": "string", "description": "The gRPC status code, such as NOT_FOUND."},
        "message": {"type": "string"},
    },
}
PROBES = {
    "/healthz": ("Whether agents' heartbeats can be written.", "text/plain"),
    "/readyz": ("Whether the controller can serve calls.", "text/plain"),
    "/metrics": ("Prometheus metrics.", "text/plain"),
    "/openapi.json": ("This document.", JSON),
}
UNAVAILABLE = {
    "/healthz": "Heartbeats cannot be written; the body says why.",
    "/readyz": "Not ready; the body says what is missing.",
}
FIELD_DESCRIPTIONS = {
    "Job.finalScore": "The VMAF score; left out unless the job is COMPLETED.",
}
AGENT_PATHS = ("/v1/nodes", "/v1/samples")
_PARAMETER = re.compile(r"{(\w+)}")


def document() -> dict[str, Any]:
    paths: dict[str, Any] = {path: {"get": _probe(path)} for path in PROBES}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    messages = {message.name: message for route in ROUTES for message in _messages(route)}
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
            "schemas": {name: _schema(messages[name]) for name in sorted(messages)} | {"Error": ERROR},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
                "certificate": {"type": "mutualTLS"},
            },
        },
    }


def _probe(path: str) -> dict[str, Any]:
    summary, media_type = PROBES[path]
    content = {media_type: {"schema": {"type": "object" if media_type == JSON else "string"}}}
    responses = {"200": {"description": summary, "content": content}}
    if path in UNAVAILABLE:
        responses["503"] = {"description": UNAVAILABLE[path], "content": content}
    return {
        "operationId": re.sub(r"\W", "", path.partition(".")[0]),
        "summary": summary,
        "security": [],
        "responses": responses,
    }


def _operation(route: CallRoute) -> dict[str, Any]:
    call = route.descriptor
    media_type = NDJSON if call.server_streaming else JSON
    responses: dict[str, Any] = {
        str(route.status): {
            "description": call.output_type.name,
            "content": {media_type: {"schema": _ref(call.output_type)}},
        },
        "default": {"description": "An error.", "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}}},
    }
    if route.location:
        schema = {"type": "string", "format": "uri-reference"}
        location = {"description": "The path of the new resource.", "schema": schema}
        responses[str(route.status)]["headers"] = {"Location": location}
    operation: dict[str, Any] = {
        "operationId": route.call,
        "summary": route.summary,
        "tags": ["agents" if route.path.startswith(AGENT_PATHS) else "clients"],
        "security": [{"token": []}, {"certificate": []}, *([{}] if route.anonymous else [])],
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
    for parameter, name in route.query_fields().items():
        yield {"name": parameter, "in": "query", "schema": _field(fields[name])}


def _schema(message: Descriptor) -> dict[str, Any]:
    properties = {field.json_name: _field(field) for field in message.fields}
    for name, schema in properties.items():
        if description := FIELD_DESCRIPTIONS.get(f"{message.name}.{name}"):
            schema["description"] = description
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _field(field: FieldDescriptor) -> dict[str, Any]:
    entry = field.message_type
    if entry is not None and is_map(entry):
        return {"type": "object", "additionalProperties": _value(entry.fields_by_name["value"])}
    return {"type": "array", "items": _value(field)} if field.is_repeated else _value(field)


def _value(field: FieldDescriptor) -> dict[str, Any]:
    """The schema of a single value of the field."""
    if field.message_type is not None:
        return _ref(field.message_type)
    if field.enum_type is not None:
        enum: EnumDescriptor = field.enum_type
        return {"type": "string", "enum": [value.name for value in enum.values]}
    return dict(SCALARS[field.type])


def _ref(message: Descriptor) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{message.name}"}


def _messages(route: CallRoute) -> Iterator[Descriptor]:
    """The messages that a route uses, including nested ones."""
    call = route.descriptor
    pending = [call.output_type, *([call.input_type] if route.method == "POST" else [])]
    while pending:
        message = pending.pop()
        if not is_map(message):
            yield message
        pending += [field.message_type for field in message.fields if field.message_type is not None]
