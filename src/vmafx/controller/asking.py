"""What an HTTP request asks for, and who asks, as the calls take it."""

import asyncio
from typing import Any

from aiohttp import web
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from vmafx.auth.doors import Presented
from vmafx.controller import jsonform
from vmafx.controller.routes import Route
from vmafx.http.errors import Refused

BODY_WITHIN = 20.0  # seconds for a body to come
OTHER_SITES = {"cross-site", "same-site"}


def presented_by(request: web.Request) -> Presented:
    """The token of its header, the name in its certificate; an address that a proxy claims counts for nothing."""
    if request.headers.get("Sec-Fetch-Site", "") in OTHER_SITES:
        raise Refused("PERMISSION_DENIED", "a page of another site may not call this with a browser's certificate")
    said = request.headers.getall("Authorization", [])
    if len(said) > 1:
        raise Refused("INVALID_ARGUMENT", "more than one Authorization")
    scheme, _, token = said[0].partition(" ") if said else ("", "", "")
    if said and scheme.lower() != "bearer":
        raise Refused("UNAUTHENTICATED", "only `Authorization: Bearer TOKEN` is understood")
    user, groups = _subject(request)
    return Presented(token.strip(), user, groups, request.remote or "")


async def asked_of(route: Route, request: web.Request) -> Message:
    """The call's request: from the body or the query, and from the path."""
    message = route.request()
    said = await _body(request) if route.method == "POST" else _query(route, request)
    for name, value in request.match_info.items():
        for spelling in jsonform.spellings(route.descriptor.input_type, name):
            if said.pop(spelling, value) != value:
                raise Refused("INVALID_ARGUMENT", f"{spelling} is another in the body than in the path")
        said[name] = value
    return jsonform.parse(said, message)


async def _body(request: web.Request) -> dict[str, Any]:
    if not request.body_exists:
        return {}
    if request.headers.get("Content-Encoding", "identity") != "identity":
        raise web.HTTPUnsupportedMediaType(reason="the body is compressed; send it as it is")
    if request.content_type != "application/json" or (request.charset or "utf-8").lower() != "utf-8":
        raise web.HTTPUnsupportedMediaType(reason="the body is not `Content-Type: application/json`, in UTF-8")
    if (request.content_length or 0) > request.client_max_size:
        raise _too_large(request)
    try:
        async with asyncio.timeout(BODY_WITHIN):
            body = await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(reason=f"the body did not come within {BODY_WITHIN:.0f} s") from None
    except web.HTTPRequestEntityTooLarge:
        raise _too_large(request) from None
    except web.RequestPayloadError:
        raise web.HTTPBadRequest(reason="the body is not what its headers say") from None
    return jsonform.loads(body) if body else {}


def _too_large(request: web.Request) -> web.HTTPException:
    most = request.client_max_size
    return web.HTTPRequestEntityTooLarge(most, most, reason=f"a body has at most {most:,} bytes")


def _query(route: Route, request: web.Request) -> dict[str, Any]:
    """Lists by commas, or by saying the parameter again."""
    known, fields = route.query(), route.descriptor.input_type.fields_by_name
    said: dict[str, Any] = {}
    for parameter in dict.fromkeys(request.query):
        if parameter not in known:
            raise Refused("INVALID_ARGUMENT", f"unknown parameter {parameter[:40]!r}; known: {', '.join(known)}")
        field, values = fields[known[parameter]], request.query.getall(parameter)
        if field.is_repeated:
            values = [one for value in values for one in value.split(",") if one]
            said[field.name] = [_enum(field, value, parameter) for value in values]
        elif len(values) > 1:
            raise Refused("INVALID_ARGUMENT", f"{parameter} is said more than once")
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


def _subject(request: web.Request) -> tuple[str, tuple[str, ...]]:
    """Of a client certificate. One that was not verified is empty here."""
    certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
    parts = [pair for entry in (certificate or {}).get("subject", ()) for pair in entry]
    user = next((value for name, value in parts if name == "commonName"), "")
    return user, tuple(value for name, value in parts if name == "organizationName")
