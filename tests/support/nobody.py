"""A port at which nobody answers, whatever else runs on this machine."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nobody_listens() -> Iterator[int]:
    """Taken, so that nobody else gets it meanwhile, and not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]
