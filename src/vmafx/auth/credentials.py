"""What a caller shows of itself, by HTTP and by gRPC. Nothing is judged here: doors.py does that.

Neither aiohttp nor grpc is imported, so that a role that speaks one of them does not pay for the other.
"""

import ipaddress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from vmafx.http.errors import CallRefused

if TYPE_CHECKING:
    import grpc

    from vmafx.http.request import HttpRequest


class CallerCredentials(NamedTuple):
    """What a caller shows of itself."""

    token: str = ""  # without "Bearer "
    user: str = ""  # from a verified client certificate (CN)
    groups: tuple[str, ...] = ()  # its O's
    peer: str = ""  # for logs and limits


def from_http(request: "HttpRequest") -> CallerCredentials:
    """The token of its header, the name in its certificate; an address that a proxy claims counts for nothing."""
    said = request.headers.getall("Authorization", [])
    if len(said) > 1:
        raise CallRefused("INVALID_ARGUMENT", "more than one Authorization")
    scheme, _, token = said[0].partition(" ") if said else ("", "", "")
    if said and scheme.lower() != "bearer":
        raise CallRefused("UNAUTHENTICATED", "only `Authorization: Bearer TOKEN` is understood")
    user = next((value for name, value in request.subject if name == "commonName"), "")
    groups = tuple(value for name, value in request.subject if name == "organizationName")
    return CallerCredentials(token.strip(), user, groups, request.peer)


def from_grpc(context: "grpc.aio.ServicerContext[Any, Any]") -> CallerCredentials:
    """A bearer token, or a certificate that the server has verified."""
    token = ""
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str) and value[:7].lower() == "bearer ":
            token = value[7:].strip()
    user, groups = "", tuple[str, ...]()
    if certificates := context.auth_context().get("x509_pem_cert"):
        user, groups = _subject(b"".join(certificates))
    return CallerCredentials(token, user, groups, context.peer())


def _subject(pem: bytes) -> tuple[str, tuple[str, ...]]:
    """Who a certificate is for, as Kubernetes reads it: the common name, and organisations as groups."""
    from cryptography import x509  # noqa: PLC0415 - HTTP has the names from the ssl module
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    names = x509.load_pem_x509_certificate(pem).subject
    users = [str(one.value) for one in names.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = tuple(str(one.value) for one in names.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    return (users[0], groups) if users else ("", ())


def host_of(peer: str) -> str:
    """The address that limits count by, out of HTTP's and gRPC's ways to say it; of IPv6 the network of one site."""
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
