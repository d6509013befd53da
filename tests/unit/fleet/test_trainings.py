"""Trainings and their versions as rows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from vmafx.api.training import TrainingView
from vmafx.fleet.trainings import model_rows, samples_per_minute, training_row

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def training(*samples: int, registry: str | None = "registry.example.com/m", **status: Any) -> TrainingView:
    """A training with a version every ten minutes, after these numbers of samples."""
    checkpoints = [
        {"number": number, "digest": f"sha256:{number}", "time": NOW + timedelta(minutes=10 * number), "samples": count,
         "pushed": number < 3}
        for number, count in enumerate(samples, 1)
    ]  # fmt: skip
    body = {
        "metadata": {"name": "t", "namespace": "n"},
        "spec": {"baseModel": "vmaf_v0.6.1", "outputRegistry": registry},
        "status": {"checkpoints": checkpoints, **status},
    }
    return msgspec.convert(body, TrainingView)


@pytest.mark.parametrize(
    ("view", "rate"),
    [
        (training(), None),
        (training(100), None),
        (training(100, lastSample=NOW + timedelta(minutes=20), currentSamples=150), 5.0),
        (training(100, lastSample=NOW, currentSamples=150), None),  # the clock was set back
        (training(50, 100, 400), 30.0),
        (training(400, 100), None),  # the volume was replaced
    ],
)
def test_the_rate_of_samples(view: TrainingView, rate: float | None) -> None:
    assert samples_per_minute(view) == rate


def test_versions_are_listed_latest_first_with_what_to_score_with() -> None:
    assert [(row.version, row.model) for row in model_rows(training(1, 2, 3))] == [
        (3, None),
        (2, "oci://registry.example.com/m@sha256:2"),
        (1, "oci://registry.example.com/m@sha256:1"),
    ]
    assert {row.model for row in model_rows(training(1, registry=None))} == {None}


@pytest.mark.parametrize(
    ("condition", "warning"),
    [
        (("Ready", "False", "TrainerUnreachable"), "TrainerUnreachable: m"),
        (("Ready", "False", "Paused"), None),
        (("Ready", "True", "Training"), None),
        (("Stale", "True", "NoNewSamples"), "Stale, NoNewSamples: m"),
        (("Diverged", "True", "RolledBack"), "Diverged, RolledBack: m"),
        (("Diverged", "False", "AsExpected"), None),
        (("Published", "False", "PushFailed"), "Published, PushFailed: m"),
        (("Published", "False", "NoRegistry"), None),
    ],
)
def test_conditions_that_need_attention_are_warnings(condition: tuple[str, str, str], warning: str | None) -> None:
    kind, status, reason = condition
    found = {"type": kind, "status": status, "reason": reason, "message": "m", "lastTransitionTime": NOW}
    row = training_row(training(conditions=[found]))
    assert row.warnings == ((warning,) if warning else ())
