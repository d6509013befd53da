"""The HTTP API as an OpenAPI 3.1 document, built from the protobuf descriptors and the routes."""

import re
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from vmafx.controller.json_messages import TIMES, is_map
from vmafx.controller.openapi_texts import EXAMPLES, FIELDS, PARAMETERS
from vmafx.controller.routes import ROUTES, CallRoute
from vmafx.http.openapi import COMPONENTS, PROBLEM_RESPONSE, REQUEST_ID_PARAMETER, RESPONSE_HEADERS, list_parameters
from vmafx.http.responses import JSON, NDJSON
from vmafx.wire import controller_pb2 as wire

# In protobuf's mapping, 64-bit integers are strings, since many JSON parsers read numbers as doubles.
SCALARS: dict[int, dict[str, str]] = {
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "format": "byte"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.TYPE_INT64: {"type": "string", "format": "int64"},
    FieldDescriptor.TYPE_DOUBLE: {"type": "number", "format": "double"},
}
PROBES: dict[str, tuple[str, str, Any]] = {  # summary, media type, example
    "/healthz": ("Whether agents can connect, and their heartbeats can be written.", "text/plain", "ok\n"),
    "/readyz": ("Whether the controller can serve calls.", "text/plain", "ok\n"),
    "/metrics": (
        "Prometheus metrics.", "text/plain", 'vmafx_controller_calls_total{method="GetJob",code="OK"} 3.0\n',
    ),
    "/openapi.json": ("This document.", JSON, {"openapi": "3.1.0"}),
}  # fmt: skip
UNAVAILABLE = {
    "/healthz": (
        "Agents cannot connect, or their heartbeats cannot be written; the body says why.",
        "heartbeats cannot be written\n",
    ),
    "/readyz": ("Not ready; the body says what is missing.", "the gRPC port is not open\n"),
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
            **COMPONENTS,
            "schemas": {name: _schema(messages[name]) for name in sorted(messages)} | COMPONENTS["schemas"],
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "bearerFormat": "JWT"},
                "certificate": {"type": "mutualTLS"},
            },
        },
    }


def _probe(path: str) -> dict[str, Any]:
    summary, media_type, example = PROBES[path]
    schema = {"type": "object" if media_type == JSON else "string"}
    content = {media_type: {"schema": schema, "example": example}}
    responses = {"200": {"description": summary, "content": content}}
    if path in UNAVAILABLE:
        description, example = UNAVAILABLE[path]
        content = {media_type: {"schema": schema, "example": example}}
        responses["503"] = {"description": description, "content": content}
    return {
        "operationId": re.sub(r"\W", "", path.partition(".")[0]),
        "summary": summary,
        "security": [],
        "responses": responses,
    }


def _operation(route: CallRoute) -> dict[str, Any]:
    call = route.descriptor
    content = {NDJSON if call.server_streaming else JSON: _reply(route)}
    if route.list_call:
        content[JSON] = _reply(route.as_list())
    headers: dict[str, Any] = dict(RESPONSE_HEADERS)
    if route.location:
        schema = {"type": "string", "format": "uri-reference"}
        headers["Location"] = {"description": "The path of the new resource.", "schema": schema}
    operation: dict[str, Any] = {
        "operationId": route.call,
        "summary": route.summary,
        "tags": ["agents" if route.path.startswith(AGENT_PATHS) else "clients"],
        "security": [{"token": []}, {"certificate": []}, *([{}] if route.anonymous else [])],
        "parameters": list(_parameters(route)),
        "responses": {
            str(route.status): {"description": call.output_type.name, "headers": headers, "content": content},
            "default": PROBLEM_RESPONSE,
        },
    }
    if route.method == "POST":
        body = {"schema": _ref(call.input_type), "example": EXAMPLES[route.call].request}
        operation["requestBody"] = {"content": {JSON: body}}
    return operation


def _reply(route: CallRoute) -> dict[str, Any]:
    return {"schema": _ref(route.descriptor.output_type), "example": EXAMPLES[route.call].response}


def _parameters(route: CallRoute) -> Iterator[dict[str, Any]]:
    fields = route.descriptor.input_type.fields_by_name
    for name in _PARAMETER.findall(route.path):
        yield {"name": name, "in": "path", "required": True, **_parameter(name, fields[name])}
    for parameter, name in route.query_fields().items():
        yield {"name": parameter, "in": "query", **_parameter(parameter, fields[name])}
    if route.list_call:
        yield from list_parameters(streams=True)
    yield REQUEST_ID_PARAMETER


def _parameter(name: str, field: FieldDescriptor) -> dict[str, Any]:
    schema = _field(field)
    return {"description": schema.pop("description"), "schema": schema, "example": PARAMETERS[name]}


def _schema(message: Descriptor) -> dict[str, Any]:
    properties = {field.json_name: _field(field) for field in message.fields}
    if message.name == wire.Job.DESCRIPTOR.name:
        for name in TIMES:
            properties[name] = {"type": "string", "format": "date-time", "description": FIELDS[message.name][name]}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _field(field: FieldDescriptor) -> dict[str, Any]:
    """The schema of a field, with its description."""
    message = cast("Descriptor", field.containing_type)  # only extensions have none
    description = {"description": FIELDS[message.name][field.json_name]}
    entry = field.message_type
    if entry is not None and is_map(entry):
        return {"type": "object", "additionalProperties": _value(entry.fields_by_name["value"]), **description}
    if field.is_repeated:
        return {"type": "array", "items": _value(field), **description}
    return {**_value(field), **description}


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
    if route.list_call:
        pending.append(route.as_list().descriptor.output_type)
    while pending:
        message = pending.pop()
        if not is_map(message):
            yield message
        pending += [field.message_type for field in message.fields if field.message_type is not None]
