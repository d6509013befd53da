"""Which addresses a URL may lead to: only public ones by default, so that no job reaches into the cluster's network."""

import errno
import ipaddress
import socket
from typing import Any

_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")
_ALL_ONES = 0xFFFF_FFFF
# What `is_global` calls public, in some Python or in all: IANA's own, tunnels, documentation,
# and an address inside one cloud that tells a machine its secrets.
_BESIDES = tuple(
    ipaddress.ip_network(one)
    for one in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "2001::/23", "2002::/16", "3fff::/20")
)

IpAddress = tuple[int, int, int, str, tuple[Any, ...]]


class AddressGuard:
    """Makes sockets to addresses that are allowed, and remembers, since aiohttp does not pass on why there was none."""

    def __init__(self, *, private: bool) -> None:
        self._private = private
        self._verdicts: set[bool] = set()

    def begin(self) -> None:
        """Forget the last host."""
        self._verdicts.clear()

    @property
    def refused(self) -> bool:
        """Whether the host has addresses, and none that is allowed."""
        return self._verdicts == {False}

    def __call__(self, address: IpAddress) -> socket.socket:
        family, kind, protocol, _, target = address
        allowed = self._private or is_public(target[0])
        self._verdicts.add(allowed)
        if not allowed:
            raise PermissionError(errno.EACCES, "not a public address")
        return socket.socket(family, kind, protocol)


def is_public(text: str) -> bool:
    """Whether the address, and the one inside it that a gateway would pass on to, are the public Internet's."""
    address = ipaddress.ip_address(text)
    if not address.is_global or address.is_multicast or any(address in network for network in _BESIDES):
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return True
    if address in _MAPPED or address in _NAT64:
        return is_public(str(ipaddress.IPv4Address(int(address) & _ALL_ONES)))
    return address in _UNICAST
