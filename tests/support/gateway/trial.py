"""A trial of weighted routing with a real gateway: `python -m tests.support.gateway.trial OUT.json`.

Run it with the prefix of network_namespace.isolation(), after fetch_binaries: the addresses of Pods are local there,
because the API server refuses loopback addresses in EndpointSlices. It starts a control plane, vmafx-operator, Envoy
Gateway, Envoy and backends, sends requests through Envoy while an inference service gets a canary, which gets more
weight and is promoted, and writes what it counted.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from tests.support.gateway.build import EnvoyGatewayFiles, find_envoy_gateway
from tests.support.gateway.load import Counts, Load
from tests.support.gateway.processes import GATEWAY, HTTP_PORT, GatewayProcesses
from tests.support.network_namespace import bring_up_loopback
from tests.support.operator_process import operator
from tests.support.serving import Serving
from tests.support.serving_kubelet import POD_RANGE, ServingKubelet
from tests.support.waiting import eventually
from vmafx.devcluster import ClusterOptions, DevCluster, crds
from vmafx.devcluster.binaries import find_binaries
from vmafx.devcluster.components import SCHEDULER
from vmafx.devcluster.progress import PlainProgress
from vmafx.kube import NAMESPACES, Client, load_config

OPTIONS = ClusterOptions(without=frozenset({SCHEDULER}), tethered=True)
REQUESTS = 20_000
FIRST_WEIGHT, SECOND_WEIGHT = 10, 50  # percent of the canary
AROUND = 2_000  # requests before and after a change, at least
PROBES = 200  # requests that show whether a weight is applied
LOG_LINES = 40
NAME, NAMESPACE, DOMAIN = "speech", "models", "models.example.com"
PORT = 9000  # of the backends; not 8080, on which Envoy Gateway serves metrics on all addresses


class TrialResult(msgspec.Struct):
    """What OUT.json holds."""

    url: str  # in the status
    first: Counts  # REQUESTS at FIRST_WEIGHT
    second: Counts  # REQUESTS at SECOND_WEIGHT
    changes: dict[str, Counts]  # by what changed: requests that were sent meanwhile


def fetch_binaries() -> EnvoyGatewayFiles:
    """Download or build what the trial runs; inside its network namespace, that is not possible."""
    find_binaries(OPTIONS.names(), PlainProgress())
    return find_envoy_gateway(PlainProgress())


class Trial:
    """An inference service behind the gateway, and requests to it."""

    def __init__(self, services: Serving) -> None:
        self._services, self._load = services, Load(f"{NAME}.{NAMESPACE}.{DOMAIN}", HTTP_PORT)
        self._changes: dict[str, Counts] = {}

    async def run(self) -> TrialResult:
        await self._services.create(NAME, modelRef="model:1", replicas=3, port=PORT)
        await self._services.until("Ready", name=NAME)
        await eventually(lambda: self._split(0), "the gateway routes to the primary")
        url = (await self._services.service(NAME)).status.url or ""
        await self._change("canary added", self._set_weight(FIRST_WEIGHT), lambda: self._split(FIRST_WEIGHT))
        first = await self._load.send(REQUESTS)
        _show("first weight", first)
        await self._change("weight raised", self._set_weight(SECOND_WEIGHT), lambda: self._split(SECOND_WEIGHT))
        second = await self._load.send(REQUESTS)
        _show("second weight", second)
        await self._change("canary promoted", self._promote(), lambda: self._split(0))
        await self._change("canary added again", self._set_weight(FIRST_WEIGHT), lambda: self._split(FIRST_WEIGHT))
        await self._change("canary aborted", self._abort(), lambda: self._split(0))
        return TrialResult(url, first, second, self._changes)

    async def _set_weight(self, weight: int) -> None:
        canary = {"modelRef": "model:2" if not self._changes.get("canary promoted") else "model:3", "weight": weight}
        await self._services.change(NAME, canary=canary)
        await self._services.until("CanaryHonoured", name=NAME)

    async def _promote(self) -> None:
        await self._services.change(NAME, modelRef="model:2", canary=None)
        await self._services.until("Ready", name=NAME)

    async def _abort(self) -> None:
        await self._services.change(NAME, canary=None)
        await self._services.until("Ready", name=NAME)

    async def _change(self, what: str, change: Any, applied: Callable[[], Awaitable[bool]]) -> None:
        """Make a change while requests are sent, and until it is applied and a while after."""
        async with self._load.running() as counts:
            await eventually(lambda: counts.total > AROUND, "requests are running")
            started = time.monotonic()
            await change
            await eventually(applied, f"the gateway applies: {what}")
            seconds, changed = time.monotonic() - started, counts.total
            await eventually(lambda: counts.total > changed + AROUND, "requests are running")
        self._changes[what] = counts
        _show(f"{what}, applied after {seconds:.1f} s", counts)

    async def _split(self, weight: int) -> bool:
        """Whether a few requests are split about as the weight says, none failing."""
        counts = await self._load.send(PROBES)
        return not counts.failed and abs(counts.percent("canary") - weight) < min(10, weight or 1)


async def trial(folder: Path) -> TrialResult:
    files = fetch_binaries()
    with DevCluster(folder / "cluster", OPTIONS) as cluster:
        async with Client(load_config(cluster.kubeconfig)) as client:
            await crds.install_crds(client)
            await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            gateway = GatewayProcesses(files, client, cluster.kubeconfig, folder / "gateway")
            variables = {"VMAFX_SERVING_GATEWAY": str(GATEWAY), "VMAFX_SERVING_DOMAIN": DOMAIN}
            try:
                async with gateway.running(), ServingKubelet(client, NAMESPACE, serve=True) as kubelet:
                    with operator(cluster, NAMESPACE, folder, **variables):
                        return await Trial(Serving(client, NAMESPACE, kubelet)).run()
            except BaseException:
                logs = gateway.logs() | {path.name: path.read_text() for path in folder.glob("operator-*.log")}
                for name, text in logs.items():
                    _print(f"--- {name}", *text.splitlines()[-LOG_LINES:])
                raise


def _show(phase: str, counts: Counts) -> None:
    _print(
        f"{phase}: {counts.total} requests, {counts.percent('canary'):.2f} % of the responses from the canary; "
        f"responses: {counts.tracks}, failed: {counts.failed or 0}"
    )


def _print(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr, flush=True)  # noqa: T201


def main() -> None:
    bring_up_loopback(POD_RANGE)
    with tempfile.TemporaryDirectory(prefix="vmafx-trial-") as folder:
        result = asyncio.run(trial(Path(folder)))
    Path(sys.argv[1]).write_bytes(msgspec.json.encode(result))


if __name__ == "__main__":
    main()
