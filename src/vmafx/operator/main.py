"""The operator process: reads its settings, connects, and runs every kind under one manager."""

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from vmafx import logs
from vmafx.kube import Client, ObjectKey, load_config
from vmafx.kube.errors import KubeError
from vmafx.kube.metrics import ClientMetrics
from vmafx.logs import log
from vmafx.operator.context import OperatorContext
from vmafx.operator.kinds import LEASE_NAME, RECONCILED_KINDS
from vmafx.operator.settings import ABOUT, PROGRAM, OperatorSettings
from vmafx.runtime.events import EventRecorder
from vmafx.runtime.leader import LeaderElection, LeaseLost
from vmafx.runtime.manager import Manager
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.role import run_role
from vmafx.settings import ParsedSettings, Settings, parse


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the operator until SIGTERM or Ctrl-C; exit code 1 if it fails."""
    groups: tuple[type[Settings], ...] = (OperatorSettings, *(kind.settings for kind in RECONCILED_KINDS))
    parsed = parse(groups, PROGRAM, ABOUT, sys.argv[1:] if arguments is None else arguments)
    settings = parsed.read(OperatorSettings)
    logs.configure(settings.log_level, settings.log_format)
    run_role("operator", partial(run, parsed), (KubeError, LeaseLost, OSError), _loop_factory())


async def run(parsed: ParsedSettings, stop: asyncio.Event) -> None:
    """Assemble the parts and run them until `stop` is set."""
    settings = parsed.read(OperatorSettings)
    config, metrics = load_config(settings.kubeconfig or None), Metrics()
    identity = f"{socket.gethostname()}_{uuid4()}"
    async with Client(config, ClientMetrics(metrics.registry)) as client:
        election = None
        if settings.leader_elect:
            lease = ObjectKey(settings.lease_namespace or config.namespace, LEASE_NAME)
            election = LeaderElection(client, lease, identity, metrics)
        manager = Manager(
            metrics, probes=settings.probe_address, metrics_at=settings.metrics_address, election=election
        )
        events = EventRecorder(client, PROGRAM, identity)
        manager.in_background(events.run)
        context = OperatorContext(
            client=client, manager=manager, metrics=metrics, events=events,
            namespace=settings.namespace, max_concurrent=settings.max_concurrent, intel_device=settings.intel_device,
        )  # fmt: skip
        for kind in RECONCILED_KINDS:
            kind.set_up(context, parsed.read(kind.settings))
        manager.in_background(metrics.measure_lag)
        log.info("starting", server=config.server, pid=os.getpid(), leader_elect=settings.leader_elect)
        await manager.run(stop)
        log.info("stopped")


def _loop_factory() -> Any:
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    return uvloop.new_event_loop
