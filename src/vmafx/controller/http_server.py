"""The calls over HTTP: path, query and JSON body become the request message, and the reply becomes JSON."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from vmafx.auth.credentials import from_http
from vmafx.controller import json_messages, openapi
from vmafx.controller.errors import kube_status_error
from vmafx.controller.routes import PATTERNS, ROUTES, CallRoute, Servicer
from vmafx.http import server
from vmafx.http.errors import StatusError
from vmafx.http.lists import LIST_PARAMETERS, list_query
from vmafx.http.request import HttpRequest
from vmafx.http.responses import JsonStream, ProbeRoutes, Response, json_response
from vmafx.http.server import RouteHandler
from vmafx.kube.errors import KubeError


def site(servicer: Servicer, probes: ProbeRoutes) -> server.Site:
    """The calls, the OpenAPI document, and `probes` (which include the metrics)."""
    document = json_response(json.dumps(openapi.document()).encode())
    return server.Site(
        routes=[server.HttpRoute(route.method, _path(route), _handler(route, servicer)) for route in ROUTES],
        probes={**probes, "/openapi.json": lambda: document},
        translate=lambda error: kube_status_error(error) if isinstance(error, KubeError) else None,
        not_found="no such path; /openapi.json describes all paths",
    )


def _path(route: CallRoute) -> str:
    path = route.path
    for name, pattern in PATTERNS.items():
        path = path.replace(f"{{{name}}}", f"{{{name}:{pattern}}}")
    return path


def _handler(route: CallRoute, servicer: Servicer) -> RouteHandler:
    if route.list_call:
        return _list_or_stream(route, servicer)
    call = getattr(servicer, route.call)

    async def handle_call(request: HttpRequest) -> Response:
        credentials, message = from_http(request), await _request_message(route, request)
        request.extend_deadline(getattr(message, "wait_seconds", 0))
        reply: Message = await call(message, credentials)
        return json_response(json_messages.message_to_json(reply), route.status, _location(route, reply))

    return handle_call


def _list_or_stream(route: CallRoute, servicer: Servicer) -> RouteHandler:
    """A stream for requests that ask for nothing else, as it was before there were lists."""
    stream, list_page = getattr(servicer, route.call), getattr(servicer, route.list_call)

    async def handle(request: HttpRequest) -> Response | JsonStream:
        credentials, query = from_http(request), list_query(request, streams=True)
        fields = _query(route, request)
        if query.watch:
            return JsonStream(_json_objects(stream(json_messages.parse_message(fields, route.request()), credentials)))
        fields |= {"limit": query.limit, "continue_token": query.token}
        message = json_messages.parse_message(fields, route.as_list().request())
        return json_response(json_messages.message_to_json(await list_page(message, credentials)))

    return handle


async def _json_objects(messages: AsyncGenerator[Message]) -> AsyncGenerator[bytes]:
    async with aclosing(messages):
        async for message in messages:
            yield json_messages.message_to_json(message)


def _location(route: CallRoute, reply: Message) -> dict[str, str]:
    if not route.location:
        return {}
    fields = {field.name: quote(str(getattr(reply, field.name)), safe="") for field in reply.DESCRIPTOR.fields}
    return {"Location": route.location.format_map(fields)}


async def _request_message(route: CallRoute, request: HttpRequest) -> Message:
    """The request message, from the path and from the body or the query."""
    fields = await request.json() if route.method == "POST" else _query(route, request)
    for name, value in request.parameters.items():
        for spelling in json_messages.field_names(route.descriptor.input_type, name):
            if fields.pop(spelling, value) != value:
                raise StatusError(
                    "INVALID_ARGUMENT", f"{spelling} differs between the body and the path; leave it out of the body"
                )
        fields[name] = value
    return json_messages.parse_message(fields, route.request())


def _query(route: CallRoute, request: HttpRequest) -> dict[str, Any]:
    """The fields in the query. Lists are separated by commas, or the parameter is repeated."""
    known, descriptors = route.query_fields(), route.descriptor.input_type.fields_by_name
    others = LIST_PARAMETERS if route.list_call else ()
    fields: dict[str, Any] = {}
    for parameter in dict.fromkeys(request.query):
        if parameter in others:
            continue
        if parameter not in known:
            names = ", ".join((*known, *others))
            hint = f"known: {names}" if names else "this path has none"
            raise StatusError("INVALID_ARGUMENT", f"unknown parameter {parameter[:40]!r}; {hint}")
        field, values = descriptors[known[parameter]], request.query.getall(parameter)
        if field.is_repeated:
            items = [item for value in values for item in value.split(",") if item]
            fields[field.name] = [_enum_name(field, item, parameter) for item in items]
        elif len(values) > 1:
            raise StatusError(
                "INVALID_ARGUMENT", f"the parameter {parameter} is given {len(values)} times; give it once"
            )
        else:
            fields[field.name] = values[0]
    return fields


def _enum_name(field: FieldDescriptor, value: str, parameter: str) -> str:
    if field.enum_type is None:
        return value
    names = field.enum_type.values_by_name
    if value.upper() not in names:
        raise StatusError("INVALID_ARGUMENT", f"{parameter} {value[:40]!r} is unknown; use one of {', '.join(names)}")
    return value.upper()
