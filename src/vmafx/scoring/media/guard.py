"""Which addresses a URL may lead to: by default only public ones, so that nobody reaches into our network through us.

Checked on the address that is about to be connected to. Whatever comes before can be talked round: a name that resolves
otherwise the second time, a redirect, 127.0.0.1 spelled as 2130706433.
"""

import errno
import ipaddress
import socket
from typing import Any

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_UNICAST = ipaddress.IPv6Network("2000::/3")
_ALL_ONES = 0xFFFF_FFFF
# Public by its number, but answers inside a cloud with what only the machine itself may know.
_METADATA = ipaddress.IPv4Address("168.63.129.16")

Address = tuple[int, int, int, str, tuple[Any, ...]]


class Guard:
    """Makes sockets to addresses that are allowed. `refused` tells that one was not, since aiohttp does not."""

    def __init__(self, *, private: bool) -> None:
        self.refused = False
        self._private = private

    def __call__(self, address: Address) -> socket.socket:
        family, kind, protocol, _, target = address
        if not self._private and not is_public(target[0]):
            self.refused = True
            raise PermissionError(errno.EACCES, "not a public address")
        return socket.socket(family, kind, protocol)


def is_public(text: str) -> bool:
    """Whether the address, and the one inside it that a gateway would pass on to, are the public Internet's."""
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast and address != _METADATA
    if address.ipv4_mapped is not None:
        return is_public(str(address.ipv4_mapped))
    if address in _NAT64:
        return is_public(str(ipaddress.IPv4Address(int(address) & _ALL_ONES)))
    if address.sixtofour is not None and not is_public(str(address.sixtofour)):
        return False
    return address.is_global and address in _UNICAST
