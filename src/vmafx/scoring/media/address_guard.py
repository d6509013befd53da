"""Which IP addresses a URL may lead to: by default only public ones, so that a job cannot reach internal services."""

import errno
import ipaddress
import socket
from typing import Any

_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_ALL_ONES = 0xFFFF_FFFF
# Not public, though `is_global` says so in some or all Python versions: IANA's own, tunnels, documentation,
# and the metadata address of Azure.
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "2001::/23", "2002::/16", "3fff::/20")
)

IpAddress = tuple[int, int, int, str, tuple[Any, ...]]


class AddressGuard:
    """A socket factory for aiohttp that refuses addresses. It records refusals, since aiohttp does not report them."""

    def __init__(self, *, private: bool) -> None:
        self._private = private
        self._verdicts: set[bool] = set()

    def reset(self) -> None:
        """Call before each request."""
        self._verdicts.clear()

    @property
    def refused(self) -> bool:
        """Whether all addresses of the host were refused."""
        return self._verdicts == {False}

    def __call__(self, address: IpAddress) -> socket.socket:
        family, kind, protocol, _, target = address
        allowed = self._private or is_public(target[0])
        self._verdicts.add(allowed)
        if not allowed:
            raise PermissionError(errno.EACCES, "not a public address")
        return socket.socket(family, kind, protocol)


def is_public(text: str) -> bool:
    """Whether the address is public, and so is the IPv4 address mapped into it."""
    address = ipaddress.ip_address(text)
    if not address.is_global or address.is_multicast or any(address in network for network in _NOT_PUBLIC):
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return True
    if address in _MAPPED or address in _NAT64:
        return is_public(str(ipaddress.IPv4Address(int(address) & _ALL_ONES)))
    return address in _GLOBAL_UNICAST
