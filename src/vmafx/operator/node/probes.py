"""One probe for each namespace that has nodes, serving all of them."""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

import msgspec

from vmafx.clock import loop_time
from vmafx.kube.fetch import fetch
from vmafx.kube.tls import trust_context
from vmafx.logs import log
from vmafx.operator.node.decide import PROBE_INTERVAL, ControllerProbe

TIMEOUT = 5.0
RETRY_AFTER = 5.0  # seconds, where the last answer was none or a bad one
DEFAULT_ADDRESS = "http://vmafx-controller.{namespace}.svc.cluster.local:8080"


class ControllerProber:
    """Asks each namespace's controller for its health, and tells when the answer changes."""

    def __init__(
        self,
        address: str,
        namespaces: Callable[[], Iterable[str]],
        changed: Callable[[str], None],
        clock: Callable[[], float] = loop_time,
    ) -> None:
        self._address, self._namespaces, self._changed, self._clock = address, namespaces, changed, clock
        self._latest: dict[str, ControllerProbe] = {}
        self._needed = asyncio.Event()
        self._trust: ssl.SSLContext | None = None

    def latest(self, namespace: str) -> ControllerProbe | None:
        """The last answer; None if there is none yet, which is then asked for at once."""
        probe = self._latest.get(namespace)
        if probe is None:
            self._needed.set()
        return probe

    async def run(self) -> None:
        """Probe every namespace every PROBE_EVERY seconds, one that fails sooner, a new one as soon as it is known."""
        due = loop_time()
        while True:
            everything = loop_time() >= due
            if everything:
                due = loop_time() + PROBE_INTERVAL
            await self.ask(everything=everything)
            failing = not all(probe.ok for probe in self._latest.values())
            try:
                async with asyncio.timeout_at(min(due, loop_time() + RETRY_AFTER) if failing else due):
                    await self._needed.wait()
            except TimeoutError:
                pass

    async def ask(self, *, everything: bool = True) -> None:
        """Probe once: every namespace, or those without a good answer."""
        self._needed.clear()
        trust = self._trust = self._trust or self._trusting()
        there = set(self._namespaces())
        for gone in self._latest.keys() - there:
            del self._latest[gone]
        well = {namespace for namespace, probe in self._latest.items() if probe.ok}
        wanted = sorted(there if everything else there - well)
        # All at once, or those that hang would use up the time of those that do not.
        await asyncio.gather(*(self._probe(trust, namespace) for namespace in wanted))

    def _trusting(self) -> ssl.SSLContext | None:
        return trust_context(None, "the controllers' address") if urlsplit(self._address).scheme == "https" else None

    async def _probe(self, trust: ssl.SSLContext | None, namespace: str) -> None:
        asked = self._clock()
        url = f"{self._address.replace('{namespace}', namespace).rstrip('/')}/healthz"
        try:
            async with asyncio.timeout(TIMEOUT):
                answer = await fetch(url, trust=trust)
            probe = ControllerProbe(ok=200 <= answer.status < 300, detail=f"{url} says {answer.status}")
        except TimeoutError:
            probe = ControllerProbe(ok=False, detail=f"{url} gave no answer within {TIMEOUT:.0f} s")
        except (OSError, ValueError) as error:
            probe = ControllerProbe(ok=False, detail=f"{url}: {error}")
        before = self._latest.get(namespace)
        self._latest[namespace] = probe = msgspec.structs.replace(probe, at=asked).after(before)
        if before is None or before.ok != probe.ok:
            if not probe.ok:
                log.warn("the controller does not answer", namespace=namespace, detail=probe.detail)
            self._changed(namespace)
