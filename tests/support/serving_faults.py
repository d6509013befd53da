"""Faults that inference services have to survive: each runs a ServingChaos with one kind of them."""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
from aiohttp import web

from tests.support.faults import kill, start
from tests.support.operator_process import LEASE, Operator, operator
from tests.support.proxy import CutStream, Delay, Fault, FaultyProxy, LoseAnswer, LoseRequest, Refuse
from tests.support.serving_chaos import ServingChaos
from tests.support.waiting import eventually
from vmafx.devcluster.components import APISERVER, CONTROLLER_MANAGER
from vmafx.kube import ObjectKey
from vmafx.kube.core import LEASES

STORMS: tuple[Fault, ...] = (Refuse(429, retry_after="0"), Refuse(500), Refuse(503))
MAX_FAULTS = 6  # kills and takeovers of a run: starting an operator takes long


async def killed_operator(run: ServingChaos, folder: Path, rng: random.Random) -> None:
    """The operator is killed at random moments, and started again."""
    kills = 0

    async def disturb(edited: asyncio.Event) -> None:
        nonlocal kills
        while kills < MAX_FAULTS and not edited.is_set():
            with operator(run.cluster, run.namespace, folder) as process:
                await eventually(lambda: asyncio.to_thread(process.ready), "the operator is ready")
                await asyncio.sleep(rng.uniform(0, 1.5))
                process.process.kill()
                kills += 1
        last.enter_context(operator(run.cluster, run.namespace, folder))
        await edited.wait()

    with ExitStack() as last:
        await run.run(disturb)
    assert kills > 1


async def two_leaders(run: ServingChaos, folder: Path, rng: random.Random) -> None:
    """The leader is stopped, another takes over, and the first continues or is killed."""
    takeovers, flags = 0, ("--leader-elect", "--leader-election-namespace", run.namespace)

    async def disturb(edited: asyncio.Event) -> None:
        nonlocal takeovers
        first = launch()
        while takeovers < MAX_FAULTS and not edited.is_set():
            await eventually(lambda: asyncio.to_thread(first.leads), "an operator leads")  # noqa: B023
            second = launch()
            await take_over(first, second)
            first, takeovers = second, takeovers + 1
        await edited.wait()

    def launch() -> Operator:
        return operators.enter_context(operator(run.cluster, run.namespace, folder, *flags))

    async def take_over(first: Operator, second: Operator) -> None:
        await eventually(lambda: asyncio.to_thread(second.ready), "the other is ready")
        await asyncio.sleep(rng.uniform(0, 0.5))
        first.process.send_signal(signal.SIGSTOP)
        sooner = {"spec": {"leaseDurationSeconds": 1}}  # the lease expires after a second, and not fifteen
        await run.client.merge_patch(LEASES, ObjectKey(run.namespace, LEASE), sooner)
        await eventually(lambda: asyncio.to_thread(second.leads), "the other leads")
        if rng.random() < 0.3:
            first.process.kill()
        first.process.send_signal(signal.SIGCONT)  # it still believes to lead, until it renews the lease
        await eventually(lambda: first.process.poll() is not None, "the first ends")

    with ExitStack() as operators:
        await run.run(disturb)
    assert takeovers


async def broken_network(run: ServingChaos, folder: Path, rng: random.Random) -> None:
    """Requests, responses and watches are lost, late, or answered with errors."""

    def choose(request: web.Request) -> Fault | None:
        if "watch" in request.query:
            return CutStream(rng.randint(0, 20_000)) if rng.random() < 0.5 else None
        if rng.random() < 0.8:
            return None
        faults: list[Fault] = [LoseRequest(), LoseAnswer(), Delay(rng.uniform(0, 0.3)), rng.choice(STORMS)]
        return rng.choice([*faults, Refuse(409)] if request.method != "GET" else faults)

    async def disturb(edited: asyncio.Event) -> None:
        proxy.choose = choose
        while not edited.is_set():
            await asyncio.sleep(rng.uniform(0, 1))
            match rng.choice(["cut", "stall", "storm"]):
                case "cut":
                    proxy.cut()
                case "stall":
                    proxy.streaming.clear()
                    await asyncio.sleep(rng.uniform(0, 2))
                    proxy.streaming.set()
                case "storm":
                    proxy.faults.extend([rng.choice(STORMS)] * rng.randint(5, 30))
                    await asyncio.sleep(rng.uniform(0, 0.5))
                    proxy.faults.clear()
        proxy.choose = lambda _: None

    async with FaultyProxy(run.client.config) as proxy:
        config = folder / f"through-the-proxy-{run.namespace}"
        config.write_bytes(msgspec.yaml.encode(_kubeconfig(proxy.config.server)))
        with operator(run.cluster, run.namespace, folder, KUBECONFIG=str(config)) as process:
            await run.run(disturb)
            assert process.process.poll() is None


async def killed_api_server(run: ServingChaos, folder: Path, rng: random.Random) -> None:
    """kube-apiserver is killed and started again."""
    kills = 0

    async def disturb(edited: asyncio.Event) -> None:
        nonlocal kills
        while not edited.is_set() and kills < MAX_FAULTS // 3:
            await asyncio.sleep(rng.uniform(0.5, 3))
            command = await asyncio.to_thread(kill, run.cluster, APISERVER)
            await asyncio.to_thread(start, run.cluster, APISERVER, command)
            kills += 1
        await edited.wait()
        # An API server that has just started lists its groups before those of CRDs are served. A garbage collector that
        # looks then drops its watch of services, and never hears of those deleted in the meantime.
        command = await asyncio.to_thread(kill, run.cluster, CONTROLLER_MANAGER)
        await asyncio.to_thread(start, run.cluster, CONTROLLER_MANAGER, command)

    with operator(run.cluster, run.namespace, folder) as process:
        await run.run(disturb)
        assert process.process.poll() is None
    assert kills


def _kubeconfig(server: str) -> dict[str, object]:
    return {
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": server}}],
        "contexts": [{"name": "x", "context": {"cluster": "x"}}],
    }


SERVING_FAULTS: dict[str, Callable[[ServingChaos, Path, random.Random], Awaitable[None]]] = {
    "killed-operator": killed_operator,
    "two-leaders": two_leaders,
    "broken-network": broken_network,
    "killed-api-server": killed_api_server,
}
