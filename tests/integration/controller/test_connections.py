"""The probe of the gRPC port by new connections, with and without TLS and client certificates."""

import asyncio
import resource
import socket
from pathlib import Path
from typing import cast

import msgspec
import pytest

from tests.support.inprocess_controller import LOCAL
from tests.support.scripted_controller import ScriptedController
from tests.support.waiting import eventually
from vmafx.auth.access import InsecureAccess
from vmafx.auth.certificates import Certificates
from vmafx.controller import connections, grpc_server
from vmafx.controller.connections import ConnectionProbe
from vmafx.controller.grpc_server import CONTROLLER, serve_grpc
from vmafx.controller.servicer import ControllerServicer
from vmafx.devcluster.pki import Authority
from vmafx.http.address import ListenAddress
from vmafx.rpc.server import max_connections
from vmafx.runtime.metrics import Metrics


def certificates(folder: Path, kind: str) -> Certificates | None:
    if kind == "plain":
        return None
    authority, files = Authority(), [folder / name for name in ("tls.crt", "tls.key", "ca.crt")]
    for file, content in zip(files, (*authority.server(), authority.certificate), strict=True):
        file.write_bytes(content)
    return Certificates(str(files[0]), str(files[1]), str(files[2]) if kind == "client certificates" else "")


@pytest.mark.parametrize("kind", ["plain", "TLS", "client certificates"])
async def test_a_full_port_is_a_problem_until_there_is_room(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = msgspec.structs.replace(CONTROLLER.limits, connections=3)
    monkeypatch.setattr(grpc_server, "CONTROLLER", CONTROLLER._replace(limits=few))
    monkeypatch.setattr(connections, "PROBE_INTERVAL", 0.05)
    monkeypatch.setattr(connections, "RETRY_INTERVAL", 0.05)
    tls = certificates(tmp_path, kind)
    calls, strangers = cast("ControllerServicer", ScriptedController()), list[asyncio.StreamWriter]()
    credentials, everywhere = tls.for_grpc() if tls is not None else None, ListenAddress(None, 0)
    async with serve_grpc(everywhere, credentials, calls, InsecureAccess(), Metrics(), 0.0) as port:
        probe = ConnectionProbe(tls=tls is not None)
        probing = asyncio.create_task(probe.run(ListenAddress(None, port)))

        async def is_full() -> bool:
            """Whether the probe has found it, after one more connection: a probe may have taken a stranger's place."""
            strangers.append((await asyncio.open_connection(LOCAL, port))[1])
            return probe.problem is not None

        await eventually(is_full, "the port is full")
        assert probe.problem == "the gRPC port closes new connections: there are too many"
        assert len(strangers) >= 3
        for stranger in strangers:
            stranger.transport.abort()
        await eventually(lambda: probe.problem is None, "there is room again")
        probing.cancel()
        await asyncio.gather(probing, return_exceptions=True)


async def test_a_port_that_does_not_serve_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the process has no file descriptors left, and when the server has ended."""
    monkeypatch.setattr(connections, "TIMEOUT", 0.2)
    monkeypatch.setattr(connections, "RETRY_INTERVAL", 0.05)
    probe = ConnectionProbe(tls=False)
    with socket.create_server((LOCAL, 0)) as not_accepting:
        probing = asyncio.create_task(probe.run(ListenAddress(LOCAL, not_accepting.getsockname()[1])))
        await eventually(lambda: "does not answer a new connection" in (probe.problem or ""), "the probe has failed")
    await eventually(lambda: "refuses new connections" in (probe.problem or ""), "the probe finds no server")
    probing.cancel()
    await asyncio.gather(probing, return_exceptions=True)


@pytest.mark.parametrize(
    ("descriptors", "most"),
    [(256, 128), (4096, 2048), (20_000, 17_952), (1 << 20, 30_000), (resource.RLIM_INFINITY, 30_000)],
)
def test_connections_leave_descriptors_for_other_uses(
    descriptors: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    assert max_connections(CONTROLLER.limits) == most
