"""A trial of weighted routing with a real gateway: `python -m tests.support.gateway.trial OUT.json`.

Run it with the prefix of network.isolation(), after fetch_binaries. It starts a control plane, Envoy Gateway, Envoy and
backends, sends requests through Envoy while the weight of the canary changes, and writes what it counted.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from tests.support.gateway.build import EnvoyGatewayFiles, find_envoy_gateway
from tests.support.gateway.children import ServiceChildren
from tests.support.gateway.load import Counts, Load
from tests.support.gateway.network import bring_up_loopback
from tests.support.gateway.processes import GATEWAY, HTTP_PORT, GatewayProcesses
from tests.support.serving_kubelet import ServingKubelet
from tests.support.waiting import eventually
from vmafx.devcluster import ClusterOptions, DevCluster
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

SetWeight = Callable[[int], Awaitable[None]]


class TrialResult(msgspec.Struct):
    """What OUT.json holds."""

    first: Counts  # REQUESTS at FIRST_WEIGHT
    change: Counts  # while the weight changed from the first to the second
    second: Counts  # REQUESTS at SECOND_WEIGHT


def fetch_binaries() -> EnvoyGatewayFiles:
    """Download or build what the trial runs; inside its network namespace, that is not possible."""
    find_binaries(OPTIONS.names(), PlainProgress())
    return find_envoy_gateway(PlainProgress())


async def serve(host: str, set_weight: SetWeight) -> TrialResult:
    """Send requests to `host` through the gateway; `set_weight` changes the percentage of the canary."""
    load = Load(host, HTTP_PORT)
    await set_weight(FIRST_WEIGHT)
    await eventually(lambda: _applied(load, FIRST_WEIGHT), "the gateway applies the first weight")
    first = await load.send(REQUESTS)
    _show("first weight", first)

    async with load.running() as change:
        await eventually(lambda: change.total > AROUND, "requests are running")
        started = time.monotonic()
        await set_weight(SECOND_WEIGHT)
        await eventually(lambda: _applied(load, SECOND_WEIGHT), "the gateway applies the second weight")
        seconds, changed = time.monotonic() - started, change.total
        await eventually(lambda: change.total > changed + AROUND, "requests are running")
    _show(f"weight change, applied after {seconds:.1f} s", change)

    second = await load.send(REQUESTS)
    _show("second weight", second)
    return TrialResult(first, change, second)


async def _applied(load: Load, weight: int) -> bool:
    """Whether a few requests are split about as the weight says, none failing."""
    counts = await load.send(PROBES)
    return not counts.failed and abs(counts.percent("canary") - weight) < 10


async def trial(folder: Path) -> TrialResult:
    files = fetch_binaries()
    with DevCluster(folder / "cluster", OPTIONS) as cluster:
        async with Client(load_config(cluster.kubeconfig)) as client:
            gateway = GatewayProcesses(files, client, cluster.kubeconfig, folder / "gateway")
            try:
                async with gateway.running():
                    return await _serve_by_hand(client)
            except BaseException:
                for name, text in gateway.logs().items():
                    _print(f"--- {name}", *text.splitlines()[-LOG_LINES:])
                raise


async def _serve_by_hand(client: Client) -> TrialResult:
    """A service whose children this process creates."""
    children = ServiceChildren("speech", "models", GATEWAY, "models.example.com")
    await client.create(NAMESPACES, {"metadata": {"name": children.namespace}})
    async with ServingKubelet(client, children.namespace, serve=True):
        await children.apply(client, {"primary": 3, "canary": 1})
        return await serve(children.host, lambda weight: children.set_weight(client, weight))


def _show(phase: str, counts: Counts) -> None:
    _print(
        f"{phase}: {counts.total} requests, {counts.percent('canary'):.2f} % of the responses from the canary; "
        f"responses: {counts.tracks}, failed: {counts.failed or 0}"
    )


def _print(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr, flush=True)  # noqa: T201


def main() -> None:
    bring_up_loopback()
    with tempfile.TemporaryDirectory(prefix="vmafx-trial-") as folder:
        result = asyncio.run(trial(Path(folder)))
    Path(sys.argv[1]).write_bytes(msgspec.json.encode(result))


if __name__ == "__main__":
    main()
