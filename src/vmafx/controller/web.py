"""The calls of the wire as routes of HTTP: a request's path, query and JSON as a message, the answer as JSON."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from vmafx.auth.credentials import from_http
from vmafx.controller import jsonform, openapi
from vmafx.controller.errors import refusal
from vmafx.controller.routes import PATTERNS, ROUTES, Calls, Route
from vmafx.http import server
from vmafx.http.answering import Handler
from vmafx.http.answers import Lines, Page, Pages, json_page
from vmafx.http.errors import Refused
from vmafx.http.request import Request
from vmafx.kube.errors import KubeError


def site(calls: Calls, pages: Pages) -> server.Site:
    """The calls, their description, and `pages` (probes and metrics)."""
    description = json_page(json.dumps(openapi.document()).encode())
    return server.Site(
        routes=[server.Route(route.method, _path(route), _handler(route, calls)) for route in ROUTES],
        pages={**pages, "/openapi.json": lambda: description},
        translate=lambda error: refusal(error) if isinstance(error, KubeError) else None,
        not_found="no such path; /openapi.json describes all paths",
    )


def _path(route: Route) -> str:
    path = route.path
    for name, pattern in PATTERNS.items():
        path = path.replace(f"{{{name}}}", f"{{{name}:{pattern}}}")
    return path


def _handler(route: Route, calls: Calls) -> Handler:
    call = getattr(calls, route.call)

    async def answer(request: Request) -> Page:
        shown, asked = from_http(request), await _message(route, request)
        request.extend_deadline(getattr(asked, "wait_seconds", 0))
        told: Message = await call(asked, shown)
        return json_page(jsonform.dumps(told), route.status, _location(route, told))

    async def stream(request: Request) -> Lines:
        shown, asked = from_http(request), await _message(route, request)
        return Lines(_objects(call(asked, shown)))

    return stream if route.descriptor.server_streaming else answer


async def _objects(messages: AsyncGenerator[Message]) -> AsyncGenerator[bytes]:
    async with aclosing(messages):
        async for message in messages:
            yield jsonform.dumps(message)


def _location(route: Route, told: Message) -> dict[str, str]:
    if not route.location:
        return {}
    fields = {field.name: quote(str(getattr(told, field.name)), safe="") for field in told.DESCRIPTOR.fields}
    return {"Location": route.location.format_map(fields)}


async def _message(route: Route, request: Request) -> Message:
    """The call's request: from the body or the query, and from the path."""
    message = route.request()
    said = await request.json() if route.method == "POST" else _query(route, request)
    for name, value in request.parameters.items():
        for spelling in jsonform.spellings(route.descriptor.input_type, name):
            if said.pop(spelling, value) != value:
                raise Refused(
                    "INVALID_ARGUMENT", f"{spelling} differs between the body and the path; leave it out of the body"
                )
        said[name] = value
    return jsonform.parse(said, message)


def _query(route: Route, request: Request) -> dict[str, Any]:
    """Lists by commas, or by saying the parameter again."""
    known, fields = route.query(), route.descriptor.input_type.fields_by_name
    said: dict[str, Any] = {}
    for parameter in dict.fromkeys(request.query):
        if parameter not in known:
            hint = f"known: {', '.join(known)}" if known else "this path takes none"
            raise Refused("INVALID_ARGUMENT", f"unknown parameter {parameter[:40]!r}; {hint}")
        field, values = fields[known[parameter]], request.query.getall(parameter)
        if field.is_repeated:
            values = [one for value in values for one in value.split(",") if one]
            said[field.name] = [_enum(field, value, parameter) for value in values]
        elif len(values) > 1:
            raise Refused("INVALID_ARGUMENT", f"the parameter {parameter} is given {len(values)} times; give it once")
        else:
            said[field.name] = values[0]
    return said


def _enum(field: FieldDescriptor, value: str, parameter: str) -> str:
    if field.enum_type is None:
        return value
    names = field.enum_type.values_by_name
    if value.upper() not in names:
        raise Refused("INVALID_ARGUMENT", f"{parameter} {value[:40]!r} is none of {', '.join(names)}")
    return value.upper()
