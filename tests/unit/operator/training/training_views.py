"""Trainings for the unit tests of their decisions."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from vmafx.api.training import TrainingView

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def view(status: dict[str, Any] | None = None, **spec: Any) -> TrainingView:
    """A training as the cache has it."""
    meta = {"name": "t", "namespace": "n", "uid": "u", "generation": 3, "creationTimestamp": NOW}
    body = {"metadata": meta, "spec": {"baseModel": "vmaf_v0.6.1", **spec}, "status": status or {}}
    return msgspec.convert(body, TrainingView)
