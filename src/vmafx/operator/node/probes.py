"""Probes the controller of each namespace that has nodes; one probe serves all nodes of the namespace."""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from urllib.parse import urlsplit

import msgspec

from vmafx.clock import loop_time
from vmafx.kube.fetch import fetch
from vmafx.kube.tls import trust_context
from vmafx.logs import log
from vmafx.operator.node.decide import PROBE_INTERVAL, ControllerProbe

TIMEOUT = 5.0  # seconds for a reply
RETRY_AFTER = 5.0  # seconds, after a probe that failed


class ControllerProber:
    """Keeps the latest probe of each namespace's controller. Calls `changed` when one starts or stops answering."""

    def __init__(
        self,
        address: str,
        namespaces: Callable[[], Iterable[str]],
        changed: Callable[[str], None],
        clock: Callable[[], float] = loop_time,
    ) -> None:
        self._address, self._namespaces, self._changed, self._clock = address, namespaces, changed, clock
        self._latest: dict[str, ControllerProbe] = {}
        self._wake = asyncio.Event()
        self._trust: ssl.SSLContext | None = None

    def latest(self, namespace: str) -> ControllerProbe | None:
        """The latest probe; None if there is none yet, and then the namespace is probed at once."""
        probe = self._latest.get(namespace)
        if probe is None:
            self._wake.set()
        return probe

    async def run(self) -> None:
        """Probe every namespace every PROBE_INTERVAL, a failing one every RETRY_AFTER, a new one at once."""
        due = loop_time()
        while True:
            everything = loop_time() >= due
            if everything:
                due = loop_time() + PROBE_INTERVAL
            await self.probe(everything=everything)
            failing = not all(probe.ok for probe in self._latest.values())
            with suppress(TimeoutError):
                async with asyncio.timeout_at(min(due, loop_time() + RETRY_AFTER) if failing else due):
                    await self._wake.wait()

    async def probe(self, *, everything: bool = True) -> None:
        """Probe once: every namespace, or only those that failed or are new."""
        self._wake.clear()
        if self._trust is None and urlsplit(self._address).scheme == "https":
            self._trust = trust_context(None, "the controllers' address")
        namespaces = set(self._namespaces())
        for removed in self._latest.keys() - namespaces:
            del self._latest[removed]
        passing = {namespace for namespace, probe in self._latest.items() if probe.ok}
        # Concurrently, so that a controller that hangs does not delay the others.
        wanted = sorted(namespaces if everything else namespaces - passing)
        await asyncio.gather(*(self._probe_namespace(namespace) for namespace in wanted))

    async def _probe_namespace(self, namespace: str) -> None:
        started = self._clock()
        url = f"{self._address.replace('{namespace}', namespace).rstrip('/')}/healthz"
        try:
            async with asyncio.timeout(TIMEOUT):
                reply = await fetch(url, trust=self._trust)
            probe = ControllerProbe(ok=200 <= reply.status < 300, detail=f"{url} returned {reply.status}")
        except TimeoutError:
            probe = ControllerProbe(ok=False, detail=f"{url} did not answer within {TIMEOUT:.0f} s")
        except (OSError, ValueError) as error:
            probe = ControllerProbe(ok=False, detail=f"{url}: {error}")
        previous = self._latest.get(namespace)
        self._latest[namespace] = probe = msgspec.structs.replace(probe, at=started).following(previous)
        if previous is None or previous.ok != probe.ok:
            if not probe.ok:
                log.warn("controller health check failed", namespace=namespace, error=probe.detail)
            elif previous is not None:
                log.info("controller health check passes again", namespace=namespace)
            self._changed(namespace)
