"""`vmafx controller`: the process."""

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from uuid import uuid4

from vmafx import logs
from vmafx.auth.access import AccessControl, InsecureAccess, RejectionLog, TokenAccess
from vmafx.auth.certificates import Certificates
from vmafx.controller import grpc_server, http_server
from vmafx.controller.caches import make_caches
from vmafx.controller.dispatch import WorkDispatcher
from vmafx.controller.jobs import ClientJobs, JobStreams
from vmafx.controller.middleware import CallMetrics, wrap_calls
from vmafx.controller.registry import AgentRegistry
from vmafx.controller.results import ResultRecorder
from vmafx.controller.servicer import ControllerServicer, ServicerParts
from vmafx.controller.sessions import Sessions, signing_key
from vmafx.controller.settings import ABOUT, PROGRAM, ControllerSettings
from vmafx.http import responses, server
from vmafx.kube import Client, load_config
from vmafx.kube.errors import ConfigError, KubeError
from vmafx.kube.metrics import ClientMetrics
from vmafx.logs import log
from vmafx.runtime.events import EventRecorder
from vmafx.runtime.manager import Manager
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.role import run_role
from vmafx.settings import load

GRACE = 5.0  # seconds for calls under way when told to stop


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the controller until SIGTERM or Ctrl-C; exit code 1 if it cannot go on."""
    settings = load(ControllerSettings, PROGRAM, ABOUT, sys.argv[1:] if arguments is None else arguments)
    logs.configure(settings.log_level, settings.log_format)
    run_role("controller", partial(run, settings), (KubeError, OSError))


async def run(settings: ControllerSettings, stop: asyncio.Event) -> None:
    """Put the parts together, and run them until told to stop."""
    config, metrics = load_config(settings.kubeconfig or None), Metrics()
    certificates = _certificates(settings.tls_cert, settings.tls_key, settings.client_ca)
    credentials = certificates.for_grpc() if certificates is not None else None
    async with Client(config, ClientMetrics(metrics.registry)) as client:
        only = settings.namespace
        cached = make_caches(client, only)
        events = EventRecorder(client, "vmafx-controller", f"{socket.gethostname()}_{uuid4()}")
        home = only or config.namespace
        parts = ServicerParts(
            doors=_doors(client, settings.auth, tls=credentials is not None),
            sessions=(sessions := Sessions(await signing_key(client, home))),
            jobs=ClientJobs(client, cached),
            nodes=AgentRegistry(client, cached, sessions),
            work=WorkDispatcher(client, cached),
            results=ResultRecorder(client, cached, events, metrics),
            streams=JobStreams(client),
            namespace=home,
            only=only,
        )
        calls = CallMetrics(metrics).counted(wrap_calls(ControllerServicer(parts), RejectionLog().told))

        manager, opened = Manager(metrics, probes=None, metrics_at=None, election=None), asyncio.Event()

        async def serve() -> None:
            async with grpc_server.serve_grpc(settings.grpc_address, credentials, calls, GRACE) as port:
                log.info("serving", grpc=port, http=http, auth=settings.auth, tls=credentials is not None)
                opened.set()
                try:
                    await stop.wait()
                finally:
                    opened.clear()
                    parts.work.close()

        def not_ready() -> str | None:
            return manager.not_ready() or (None if opened.is_set() else "the gRPC port is not open")

        for informer in cached:
            manager.add_informer(informer)
        manager.in_background(events.run)
        manager.in_background(metrics.measure_lag)
        manager.while_leading(serve)
        pages: responses.ProbeRoutes = {
            "/healthz": responses.probe_response(parts.nodes.trouble),
            "/readyz": responses.probe_response(not_ready),
            "/metrics": responses.metrics_response(metrics.registry),
        }
        log.info("starting", server=config.server, pid=os.getpid())
        tls = certificates.for_http() if certificates is not None else None
        async with server.serve_http(settings.http_address, http_server.site(calls, pages), tls) as http:
            await manager.run(stop)
        log.info("stopped")


def _certificates(certificate: str, key: str, authority: str) -> Certificates | None:
    """What the server shows of itself, and whose certificates it takes; None without TLS."""
    if not certificate and not key:
        if authority:
            raise ConfigError("--client-ca needs --tls-cert and --tls-key: without TLS there are no certificates")
        return None
    if not certificate or not key:
        raise ConfigError("--tls-cert and --tls-key go together")
    return Certificates(certificate, key, authority)


def _doors(client: Client, auth: str, *, tls: bool) -> AccessControl:
    if auth == "token":
        if not tls:
            log.warn("tokens come in without TLS: whoever is on the way can use them; give --tls-cert and --tls-key")
        return TokenAccess(client)
    log.warn("everybody may come in: --auth insecure is for development only")
    return InsecureAccess()


if __name__ == "__main__":
    main()
