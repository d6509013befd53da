"""The credentials of a call, read from HTTP and gRPC requests; access.py verifies them.

Neither aiohttp nor grpc is imported, so that a role that uses one of them does not load the other.
"""

import ipaddress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from vmafx.http.errors import StatusError

if TYPE_CHECKING:
    import grpc

    from vmafx.http.request import HttpRequest


class CallerCredentials(NamedTuple):
    """A bearer token, or the subject of a verified client certificate, and the address of the peer."""

    token: str = ""  # without "Bearer "
    user: str = ""  # common name (CN) of the client certificate
    groups: tuple[str, ...] = ()  # organizations (O) of the client certificate
    peer: str = ""  # for logs and limits
    agent: str = ""  # the agent whose current session the call has; its token must be valid nonetheless


def from_http(request: "HttpRequest") -> CallerCredentials:
    """The peer is that of the connection: X-Forwarded-For and similar headers are not trusted."""
    headers = request.headers.getall("Authorization", [])
    if len(headers) > 1:
        raise StatusError("INVALID_ARGUMENT", "the request has more than one Authorization header; send one")
    scheme, _, token = headers[0].partition(" ") if headers else ("", "", "")
    if headers and scheme.lower() != "bearer":
        raise StatusError("UNAUTHENTICATED", "the Authorization header must be `Authorization: Bearer TOKEN`")
    user, groups = "", tuple[str, ...]()
    if subject := request.subject:
        user = next((value for name, value in subject if name == "commonName"), "")
        groups = tuple(value for name, value in subject if name == "organizationName")
    return CallerCredentials(token.strip(), user, groups, request.peer)


def from_grpc(context: "grpc.aio.ServicerContext[Any, Any]") -> CallerCredentials:
    """The certificate, if there is one, has been verified by the server."""
    token = ""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str) and value[:7].lower() == "bearer ":
            token = value[7:].strip()
    user, groups = "", tuple[str, ...]()
    if certificates := context.auth_context().get("x509_pem_cert"):
        user, groups = _subject(b"".join(certificates))
    return CallerCredentials(token, user, groups, context.peer())


def _subject(pem: bytes) -> tuple[str, tuple[str, ...]]:
    """User and groups of a certificate, as in Kubernetes: its common name and its organizations."""
    from cryptography import x509  # noqa: PLC0415 - for HTTP, the ssl module parses the subject
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    names = x509.load_pem_x509_certificate(pem).subject
    users = [str(one.value) for one in names.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = tuple(str(one.value) for one in names.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    return (users[0], groups) if users else ("", ())


@lru_cache(4096)
def host_of(peer: str) -> str:
    """The address that limits count by, from a peer as HTTP or gRPC writes it; for IPv6, its /64 network."""
    text = unquote(peer)
    for kind in ("ipv4:", "ipv6:"):
        text = text.removeprefix(kind)
    if text.startswith("[") or text.count(":") == 1:
        text = text.rpartition(":")[0].strip("[]") if not text.endswith("]") else text.strip("[]")
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)
