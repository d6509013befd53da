"""The process of `vmafx controller`: builds the components, serves, and stops."""

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
from vmafx.controller import http_server
from vmafx.controller.caches import make_caches
from vmafx.controller.connections import ConnectionProbe
from vmafx.controller.dispatch import WorkDispatcher
from vmafx.controller.grpc_server import CONTROLLER, serve_grpc
from vmafx.controller.jobs import ClientJobs, JobStreams
from vmafx.controller.middleware import AgentCalls, ControllerCallLimits
from vmafx.controller.registry import AgentRegistry
from vmafx.controller.results import ResultRecorder
from vmafx.controller.routes import SERVICE
from vmafx.controller.samples import SampleForwarder
from vmafx.controller.servicer import ControllerServicer, ServicerParts
from vmafx.controller.sessions import Sessions, signing_key
from vmafx.controller.settings import ABOUT, PROGRAM, ControllerSettings
from vmafx.http import responses, server
from vmafx.http.address import ListenAddress
from vmafx.jobs.sample_keys import SampleKeys
from vmafx.kube import Client, load_config
from vmafx.kube.errors import ConfigError, KubeError
from vmafx.kube.metrics import ClientMetrics
from vmafx.logs import log
from vmafx.rpc.middleware import CallMetrics, wrap_calls
from vmafx.rpc.server import max_connections
from vmafx.runtime.events import EventRecorder
from vmafx.runtime.manager import Manager
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.role import raise_descriptor_limit, run_role
from vmafx.settings import load
from vmafx.tasks import run_unless

GRACE_PERIOD = 5.0  # seconds for unfinished calls when the process stops


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the controller until SIGTERM or Ctrl-C; exit code 1 if it fails."""
    settings = load(ControllerSettings, PROGRAM, ABOUT, sys.argv[1:] if arguments is None else arguments)
    logs.configure(settings.log_level, settings.log_format)
    raise_descriptor_limit()
    run_role("controller", partial(run, settings), (KubeError, OSError))


async def run(settings: ControllerSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set."""
    config, metrics = load_config(settings.kubeconfig or None), Metrics()
    certificates = _certificates(settings.tls_cert, settings.tls_key, settings.client_ca)
    credentials = certificates.for_grpc() if certificates is not None else None
    async with Client(config, ClientMetrics(metrics.registry)) as client:
        caches = make_caches(client, settings.namespace)
        events = EventRecorder(client, "vmafx-controller", f"{socket.gethostname()}_{uuid4()}")
        default_namespace = settings.namespace or config.namespace
        access = _access_control(client, settings.auth, tls=credentials is not None)
        parts = ServicerParts(
            access=access,
            sessions=(sessions := Sessions(await signing_key(client, default_namespace))),
            jobs=ClientJobs(client, caches),
            registry=AgentRegistry(client, caches, sessions, settings.max_agent_capacity),
            dispatcher=WorkDispatcher(client, caches),
            results=ResultRecorder(client, caches, events, metrics),
            samples=SampleForwarder(caches, SampleKeys(client), settings.trainer_address, metrics),
            streams=JobStreams(client),
            default_namespace=default_namespace,
            only_namespace=settings.namespace,
        )
        limited = AgentCalls(parts.registry).wrap(ControllerCallLimits(access).wrap(ControllerServicer(parts)))
        logged = wrap_calls(SERVICE, limited, RejectionLog().log_rejection)
        servicer = CallMetrics(CONTROLLER, metrics.registry).wrap(logged)

        manager, serving = Manager(metrics, probes=None, metrics_at=None, election=None), asyncio.Event()
        connections = ConnectionProbe(tls=credentials is not None)

        async def serve() -> None:
            async with serve_grpc(settings.grpc_address, credentials, servicer, access, metrics, GRACE_PERIOD) as port:
                log.info(
                    "serving", grpc=port, http=http, auth=settings.auth, tls=credentials is not None,
                    max_connections=max_connections(CONTROLLER.limits),
                )  # fmt: skip
                serving.set()
                try:
                    await run_unless(stop, connections.run(ListenAddress(settings.grpc_address.host, port)))
                finally:
                    serving.clear()
                    parts.dispatcher.close()

        def not_ready() -> str | None:
            return manager.not_ready() or (None if serving.is_set() else "the gRPC port is not open")

        def not_healthy() -> str | None:
            return parts.registry.heartbeat_problem() or connections.problem

        for informer in caches:
            manager.add_informer(informer)
        manager.in_background(events.run)
        manager.in_background(metrics.measure_lag)
        manager.while_leading(serve)
        probes: responses.ProbeRoutes = {
            "/healthz": responses.probe_response(not_healthy),
            "/readyz": responses.probe_response(not_ready),
            "/metrics": responses.metrics_response(metrics.registry),
        }
        log.info("starting", server=config.server, pid=os.getpid())
        tls = certificates.for_http() if certificates is not None else None
        async with server.serve_http(settings.http_address, http_server.site(servicer, probes), tls) as http:
            await manager.run(stop)
        log.info("stopped")


def _certificates(certificate: str, key: str, client_ca: str) -> Certificates | None:
    """None without TLS."""
    if not certificate and not key:
        if client_ca:
            raise ConfigError("--client-ca needs TLS: set --tls-cert and --tls-key too")
        return None
    if not certificate or not key:
        raise ConfigError("--tls-cert and --tls-key must be set together")
    return Certificates(certificate, key, client_ca)


def _access_control(client: Client, auth: str, *, tls: bool) -> AccessControl:
    if auth == "token":
        if not tls:
            log.warn("tokens are sent without TLS and can be intercepted; set --tls-cert and --tls-key")
        return TokenAccess(client)
    log.warn("every caller may do everything; use --auth insecure for development only")
    return InsecureAccess()


if __name__ == "__main__":
    main()
