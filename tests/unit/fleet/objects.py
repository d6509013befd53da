"""Jobs and nodes as the fleet commands read them, for tests without a cluster."""

from datetime import UTC, datetime, timedelta
from typing import Any

from vmafx.api.job import JobSpecView
from vmafx.api.meta import Condition, MetaView
from vmafx.api.node import VmafxNodeSpec
from vmafx.fleet.reader import FleetJob, FleetJobStatus, FleetNode, FleetNodeStatus

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
HOSTILE = "a\x1b]0;owned\x07\x9b31m\u202eb\nc\td\x00 é 日本"


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def job(name: str, spec: dict[str, Any] | None = None, age: float = 60, **status: Any) -> FleetJob:
    meta = MetaView(name, "x", f"uid-{name}", creationTimestamp=ago(age))
    return FleetJob(meta, JobSpecView("s3://b/r", "s3://b/d", **(spec or {})), FleetJobStatus(**status))


def running_job(name: str, on: str, since: float) -> FleetJob:
    placed = condition("Scheduled", "Placed", status="True", at=ago(since))
    return job(name, phase="Running", assignedNode=on, startedAt=ago(since), conditions=(placed,))


def node(name: str, spec: dict[str, Any] | None = None, **status: Any) -> FleetNode:
    return FleetNode(
        MetaView(name, "x"), VmafxNodeSpec(**({"gpuVendor": "cpu"} | (spec or {}))),
        FleetNodeStatus(**({"healthy": True} | status)),
    )  # fmt: skip


def condition(
    kind: str, reason: str, message: str = "a message", status: Any = "False", at: datetime = NOW
) -> Condition:
    return Condition(kind, status, at, reason, message)
