"""Where a server listens."""

from typing import NamedTuple


class ListenAddress(NamedTuple):
    """Where to listen: `:8081` is every interface, `0` nowhere."""

    host: str | None
    port: int

    @classmethod
    def parse(cls, text: str) -> "ListenAddress | None":
        """Go's form of an address; None for `0`, which means not to listen. ValueError says what is wrong with it."""
        if text == "0":
            return None
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal() or not 0 <= int(port) <= 65535:
            raise ValueError(f"{text!r} is no address: use :8081, 127.0.0.1:8081, or 0 for none")
        return cls(host.strip("[]") or None, int(port))
