"""The names that a server answers to, and the web pages that may use it: against pages of other sites.

With DNS rebinding, the name of an attacker's page resolves to the address of this server after the page was loaded. The
browser then takes the server for the page's own, but still sends the page's name as Host.
"""

import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from vmafx.http.errors import StatusError

CLUSTER_SUFFIXES = (".svc", ".cluster.local")  # of Services; nobody can register such names
FOREIGN_SITES = {"cross-site", "same-site"}  # values of Sec-Fetch-Site
OWN_SITES = {"same-origin", "none"}
FOLLOWED_LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
DEFAULT_PORTS = {"http": 80, "https": 443}
_AUTHORITY = re.compile(r"(?P<host>\[[0-9a-fA-F:.]{2,45}\]|[a-zA-Z0-9._-]{1,253})(?::(?P<port>[0-9]{1,5})?)?")
_NAME = re.compile(r"(?:\*\.)?[a-z0-9_](?:[a-z0-9._-]{0,251}[a-z0-9_])?")


class HostAndPort(NamedTuple):
    """Host and port as in a URL; the host in lower case, without brackets or a final dot."""

    host: str
    port: int | None

    @classmethod
    @lru_cache(256)
    def parse(cls, text: str) -> "HostAndPort | None":
        match = _AUTHORITY.fullmatch(text)
        host = match["host"].lower().strip("[]").removesuffix(".") if match is not None else ""
        if match is None or not host or host.startswith(".") or ".." in host:
            return None
        if match["host"].startswith("[") and not _is_address(host):
            return None
        return cls(host, int(match["port"]) if match["port"] else None)


class HostPolicy:
    """Accepts IP addresses, names that no attacker can register, and those that the setting named `setting` lists.

    A configured name is exact, such as `scores.example.com`, or stands for all names below it: `*.example.com`.
    """

    def __init__(self, names: Iterable[str] = (), setting: str = "--allowed-hosts") -> None:
        self._setting = setting
        configured = [name.strip().lower().removesuffix(".") for name in names]
        for name in configured:
            if not _NAME.fullmatch(name) or ".." in name:
                raise ValueError(f"{name[:100]!r} is not the name of a host: use scores.example.com or *.example.com")
        self._names = {name for name in configured if not name.startswith("*.")} | {socket.gethostname().lower()}
        self._suffixes = (*CLUSTER_SUFFIXES, *(name[1:] for name in configured if name.startswith("*.")))

    def check(self, hosts: Sequence[str]) -> None:
        """Check the values of the Host headers of a request; StatusError unless it has one, which is accepted."""
        authority = HostAndPort.parse(hosts[0]) if len(hosts) == 1 else None
        if authority is None:
            raise StatusError("INVALID_ARGUMENT", "the request must have one Host header, with a host and a port")
        if not self._accepts(authority.host):
            raise StatusError(
                "PERMISSION_DENIED",
                f"this server does not answer to the name {authority.host[:100]!r}; "
                f"if it should, add the name to {self._setting}",
                status=421,
            )

    def _accepts(self, host: str) -> bool:
        return "." not in host or host in self._names or host.endswith(self._suffixes) or _is_address(host)


def parse_hosts(text: str) -> tuple[str, ...]:
    """The value of a setting with names, separated by commas. Raises ValueError."""
    names = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    HostPolicy(names)  # raises for one that is malformed
    return names


def check_origin(headers: Mapping[str, str], *, tls: bool, linkable: bool = False) -> None:
    """Reject the requests of web pages of other sites; other clients send none of these headers.

    Browsers send Sec-Fetch-Site over TLS and to the same machine only, and Origin with every request but plain GETs.
    Where a proxy replaces Host, Sec-Fetch-Site still tells which requests are of the server's own pages. A user may
    follow a link from another site to a `linkable` page.
    """
    site = headers.get("Sec-Fetch-Site", "")
    if site in OWN_SITES or (linkable and {name: headers.get(name) for name in FOLLOWED_LINK} == FOLLOWED_LINK):
        return
    origin = headers.get("Origin")
    if site in FOREIGN_SITES or (origin is not None and not _is_origin_of(origin, headers.get("Host", ""), tls=tls)):
        raise StatusError("PERMISSION_DENIED", "requests from web pages of other sites are not allowed")


def _is_origin_of(origin: str, host: str, *, tls: bool) -> bool:
    """A proxy may have removed TLS, but not added it."""
    scheme, _, rest = origin.lower().partition("://")
    page, own = HostAndPort.parse(rest), HostAndPort.parse(host)
    if scheme not in DEFAULT_PORTS or page is None or own is None or (tls and scheme != "https"):
        return False
    default = DEFAULT_PORTS[scheme]
    return (page.host, page.port or default) == (own.host, own.port or default)


@lru_cache(1024)
def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
