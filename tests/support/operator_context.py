"""An OperatorContext, for tests that run reconcilers in this process."""

from typing import Any

from vmafx.kube import Client
from vmafx.operator.context import OperatorContext
from vmafx.runtime.events import EventRecorder
from vmafx.runtime.manager import Manager
from vmafx.runtime.metrics import Metrics


def context(client: Client, namespace: str, metrics: Metrics | None = None, **parts: Any) -> OperatorContext:
    """A context with a manager that is not yet started."""
    metrics = metrics or Metrics()
    manager = Manager(metrics, probes=None, metrics_at=None, election=None)
    events = EventRecorder(client, "vmafx-operator", "test")
    manager.in_background(events.run)
    options: dict[str, Any] = {"namespace": namespace, "max_concurrent": 8} | parts
    return OperatorContext(client=client, manager=manager, metrics=metrics, events=events, **options)
