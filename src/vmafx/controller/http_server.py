"""The calls over HTTP: path, query and JSON body as a protobuf message, the reply as JSON."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from vmafx.auth.credentials import from_http
from vmafx.controller import json_messages, openapi
from vmafx.controller.errors import refusal_for
from vmafx.controller.routes import PATTERNS, ROUTES, CallRoute, Servicer
from vmafx.http import server
from vmafx.http.errors import CallRefused
from vmafx.http.request import HttpRequest
from vmafx.http.responses import JsonStream, ProbeRoutes, Response, json_response
from vmafx.http.server import RouteHandler
from vmafx.kube.errors import KubeError


def site(calls: Servicer, pages: ProbeRoutes) -> server.Site:
    """The calls, their description, and `pages` (probes and metrics)."""
    description = json_response(json.dumps(openapi.document()).encode())
    return server.Site(
        routes=[server.HttpRoute(route.method, _path(route), _handler(route, calls)) for route in ROUTES],
        pages={**pages, "/openapi.json": lambda: description},
        translate=lambda error: refusal_for(error) if isinstance(error, KubeError) else None,
        not_found="no such path; /openapi.json describes all paths",
    )


def _path(route: CallRoute) -> str:
    path = route.path
    for name, pattern in PATTERNS.items():
        path = path.replace(f"{{{name}}}", f"{{{name}:{pattern}}}")
    return path


def _handler(route: CallRoute, calls: Servicer) -> RouteHandler:
    call = getattr(calls, route.call)

    async def answer(request: HttpRequest) -> Response:
        shown, asked = from_http(request), await _message(route, request)
        request.extend_deadline(getattr(asked, "wait_seconds", 0))
        told: Message = await call(asked, shown)
        return json_response(json_messages.message_to_json(told), route.status, _location(route, told))

    async def stream(request: HttpRequest) -> JsonStream:
        shown, asked = from_http(request), await _message(route, request)
        return JsonStream(_objects(call(asked, shown)))

    return stream if route.descriptor.server_streaming else answer


async def _objects(messages: AsyncGenerator[Message]) -> AsyncGenerator[bytes]:
    async with aclosing(messages):
        async for message in messages:
            yield json_messages.message_to_json(message)


def _location(route: CallRoute, told: Message) -> dict[str, str]:
    if not route.location:
        return {}
    fields = {field.name: quote(str(getattr(told, field.name)), safe="") for field in told.DESCRIPTOR.fields}
    return {"Location": route.location.format_map(fields)}


async def _message(route: CallRoute, request: HttpRequest) -> Message:
    """The call's request: from the body or the query, and from the path."""
    message = route.request()
    said = await request.json() if route.method == "POST" else _query(route, request)
    for name, value in request.parameters.items():
        for spelling in json_messages.field_names(route.descriptor.input_type, name):
            if said.pop(spelling, value) != value:
                raise CallRefused(
                    "INVALID_ARGUMENT", f"{spelling} differs between the body and the path; leave it out of the body"
                )
        said[name] = value
    return json_messages.parse_message(said, message)


def _query(route: CallRoute, request: HttpRequest) -> dict[str, Any]:
    """Lists by commas, or by saying the parameter again."""
    known, fields = route.query(), route.descriptor.input_type.fields_by_name
    said: dict[str, Any] = {}
    for parameter in dict.fromkeys(request.query):
        if parameter not in known:
            hint = f"known: {', '.join(known)}" if known else "this path takes none"
            raise CallRefused("INVALID_ARGUMENT", f"unknown parameter {parameter[:40]!r}; {hint}")
        field, values = fields[known[parameter]], request.query.getall(parameter)
        if field.is_repeated:
            values = [one for value in values for one in value.split(",") if one]
            said[field.name] = [_enum(field, value, parameter) for value in values]
        elif len(values) > 1:
            raise CallRefused(
                "INVALID_ARGUMENT", f"the parameter {parameter} is given {len(values)} times; give it once"
            )
        else:
            said[field.name] = values[0]
    return said


def _enum(field: FieldDescriptor, value: str, parameter: str) -> str:
    if field.enum_type is None:
        return value
    names = field.enum_type.values_by_name
    if value.upper() not in names:
        raise CallRefused("INVALID_ARGUMENT", f"{parameter} {value[:40]!r} is none of {', '.join(names)}")
    return value.upper()
