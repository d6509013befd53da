"""`vmafx-operator`: the process."""

import asyncio
import os
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import uuid4

from vmafx import logs
from vmafx.kube import Client, Key, load_config
from vmafx.kube.errors import KubeError
from vmafx.kube.metrics import ClientMetrics
from vmafx.logs import log
from vmafx.operator.job.cache import Caches, jobs_by_node, pods_informer
from vmafx.operator.job.pod import PodSettings
from vmafx.operator.job.reconciler import JobReconciler
from vmafx.operator.node.reconciler import NodeReconciler, nodes_informer
from vmafx.operator.options import ABOUT, PROGRAM, SETTINGS
from vmafx.operator.rbac import LEASE
from vmafx.runtime.events import EventRecorder
from vmafx.runtime.leader import LeaderElection, LeaseLost
from vmafx.runtime.manager import Manager
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.role import run_role
from vmafx.settings import load_named as load


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the operator until SIGTERM or Ctrl-C; exit code 1 if it cannot go on."""
    settings = load(SETTINGS, PROGRAM, ABOUT, sys.argv[1:] if arguments is None else arguments)
    logs.configure(settings["log_level"], settings["log_format"])
    run_role("operator", partial(run, settings), (KubeError, LeaseLost, OSError), _loop_factory())


async def run(settings: dict[str, Any], stop: asyncio.Event) -> None:
    """Put the parts together, and run them until told to stop."""
    config, metrics = load_config(settings["kubeconfig"] or None), Metrics()
    identity = f"{socket.gethostname()}_{uuid4()}"
    async with Client(config, ClientMetrics(metrics.registry)) as client:
        election = None
        if settings["leader_elect"]:
            lease = Key(settings["lease_namespace"] or config.namespace, LEASE)
            election = LeaderElection(client, lease, identity, metrics)
        manager = Manager(
            metrics, probes=settings["probe_address"], metrics_at=settings["metrics_address"], election=election
        )
        events = EventRecorder(client, PROGRAM, identity)
        manager.in_background(events.run)
        nodes = nodes_informer(client, settings["namespace"])
        manager.add_informer(nodes, fresh=True)
        jobs = jobs_by_node(client, settings["namespace"])
        pods = pods_informer(client, jobs)
        manager.add_informer(jobs, fresh=True)
        manager.add_informer(pods)
        workers = PodSettings(settings["worker_image"], settings["intel_device"])
        addresses = settings["following_address"]
        running = JobReconciler(client, Caches(jobs, nodes, pods), events, metrics, workers, controllers=addresses)
        manager.add_controller(running.controller(settings["workers"]))
        manager.while_leading(running.lead)
        address = settings["controller_address"]
        health = NodeReconciler(client, nodes, events, address=address, has_jobs=running.has_jobs)
        manager.add_controller(health.controller(metrics, workers=settings["workers"]))
        manager.while_leading(health.probes.run)
        manager.in_background(metrics.measure_lag)
        log.info("starting", server=config.server, pid=os.getpid(), leader_elect=settings["leader_elect"])
        await manager.run(stop)
        log.info("stopped")


def _loop_factory() -> Any:
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    return uvloop.new_event_loop
