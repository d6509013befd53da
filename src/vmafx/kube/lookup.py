"""Looks up the addresses of names in threads, since getaddrinfo blocks."""

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any

Addresses = list[Any]  # as socket.getaddrinfo returns them


class _Lookup:
    """A lookup that is queued or runs."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port, self.waiting = host, port, 0
        self.result: Future[Addresses] = Future()
        self.result.set_running_or_notify_cancel()  # a caller that is cancelled does not cancel it for the others

    def run(self, before_result: Callable[[], None]) -> None:
        try:
            addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:  # ValueError: a name that cannot be encoded
            before_result()
            self.result.set_exception(error)
        else:
            before_result()
            self.result.set_result(addresses)


class NameLookups:
    """A limited number of threads, started when needed; concurrent lookups of one name share one of them.

    getaddrinfo cannot be interrupted. Its thread is a daemon, so that the process does not wait for it when it exits.
    """

    def __init__(self, threads: int) -> None:
        self._max_threads, self._threads = threads, 0
        self._queue: SimpleQueue[_Lookup] = SimpleQueue()
        self._pending: dict[tuple[str, int], _Lookup] = {}
        self._lock = threading.Lock()

    async def look_up(self, host: str, port: int) -> Addresses:
        """The addresses of a host. Raises OSError, or ValueError for an invalid name."""
        try:  # an IP address needs no thread
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            lookup = self._join(host, port)
        try:
            return await asyncio.wrap_future(lookup.result)
        finally:
            with self._lock:
                lookup.waiting -= 1

    def _join(self, host: str, port: int) -> _Lookup:
        with self._lock:
            lookup = self._pending.get((host, port))
            if lookup is None:
                if self._threads < min(self._max_threads, len(self._pending) + 1):
                    threading.Thread(target=self._run, name="lookup", daemon=True).start()
                    self._threads += 1
                lookup = self._pending[host, port] = _Lookup(host, port)
                self._queue.put(lookup)
            lookup.waiting += 1
            return lookup

    def _run(self) -> None:
        while True:
            lookup = self._queue.get()
            if self._is_wanted(lookup):
                lookup.run(partial(self._forget, lookup))
            del lookup  # its result is not kept until the next one

    def _forget(self, lookup: _Lookup) -> None:
        with self._lock:
            del self._pending[lookup.host, lookup.port]

    def _is_wanted(self, lookup: _Lookup) -> bool:
        """Whether a caller still waits for a lookup; if not, it is dropped."""
        with self._lock:
            if not lookup.waiting:
                del self._pending[lookup.host, lookup.port]
            return lookup.waiting > 0
