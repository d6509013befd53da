"""The address a server listens on."""

from typing import NamedTuple


class ListenAddress(NamedTuple):
    """Host and port; without a host, all interfaces."""

    host: str | None
    port: int

    @classmethod
    def parse(cls, text: str) -> "ListenAddress | None":
        """Parse an address as Go writes it, such as `:8081`; None for `0`, which disables the server."""
        if text == "0":
            return None
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal() or not 0 <= int(port) <= 65535:
            raise ValueError(f"{text!r} is not an address: use :8081, 127.0.0.1:8081, or 0 to disable")
        return cls(host.strip("[]") or None, int(port))
