"""docs/training.md states what the code does."""

import re

import msgspec
import pytest

from tests.support.project import ROOT
from vmafx.agent.settings import AgentSettings
from vmafx.api.training import MAX_CHECKPOINTS, VmafxModelTrainingSpec
from vmafx.scoring import artifact
from vmafx.scoring.learned import FORMAT, LearnedModel
from vmafx.scoring.result import MODEL_FEATURES
from vmafx.settings import declared
from vmafx.training import (
    distillation,
    divergence,
    exclusion,
    held_out,
    learner,
    online,
    shuffle_buffer,
    targets,
    teacher,
)
from vmafx.training.network import parameter_count
from vmafx.training.sample_log import MAX_ATTEMPTS
from vmafx.training.samples import MAX_SAMPLES
from vmafx.training.versions import ModelMetadata

PAGE = " ".join((ROOT / "docs/training.md").read_text().split())


@pytest.mark.parametrize(
    "text",
    [
        f"at most {MAX_SAMPLES} samples",
        f"They take {4 * (len(MODEL_FEATURES) + 2)} bytes each",
        f"the latest {MAX_ATTEMPTS:,} attempts",
        f"at most {declared(AgentSettings)['samples_mib'].default} MiB",
        f"({teacher.MAX_ERROR:g} points off on average)",
        f"one hidden layer of {distillation.UNITS} units",
        f"It has {parameter_count(distillation.UNITS)} parameters",
        f"on {distillation.POINTS_TO_FIT:,} feature vectors",
        f"a buffer of up to {shuffle_buffer.SIZE:,}",
        f"velocity ← {learner.MOMENTUM:g} · velocity",
        f"the gradient limited to a norm of {learner.MAX_GRADIENT:g}",
        f"updated every {learner.NORMALISE_EVERY:,} samples",
        f"the latest {held_out.WINDOW:,} held-out samples",
        f"*L* > {divergence.FACTOR:g} *R* + {divergence.MARGIN:g}",
        f"The latest {MAX_CHECKPOINTS} versions are kept and pushed",
        f"`{artifact.MANIFEST_TYPE}`",
        f"`{artifact.ARTIFACT_TYPE}`",
        f"`{artifact.CONFIG_TYPE}`",
        f"`{artifact.MODEL_TYPE}`",
        f"(`{FORMAT}`)",
    ],
)
def test_the_page_has_the_figure_of_the_code(text: str) -> None:
    assert text in PAGE


def test_numbers_that_the_page_writes_as_words() -> None:
    assert held_out.HOLD_OUT_EVERY == 10
    assert "One clip in ten is held out" in PAGE
    assert exclusion.MAX_STRIKES == 3
    assert exclusion.EXCLUDED_FOR.total_seconds() == 3600
    assert "three such batches in a row is excluded for an hour" in PAGE
    assert learner.RECOVER_AFTER == 10
    assert "doubled again after every ten versions without a divergence" in PAGE
    assert targets.HUMAN_WEIGHT == 10
    assert "it counts ten times as much" in PAGE
    assert online.MAX_ROLLBACKS == 5
    assert "After five divergences without a version" in PAGE
    assert online.STALE_INTERVALS == 3
    assert "three times `checkpoint.interval`" in PAGE
    assert online.LOG_SHARE == 0.5
    assert "half of `storage.size`" in PAGE
    assert online.SNAPSHOT_INTERVAL.total_seconds() == 60
    assert "the last snapshot (a minute at most)" in PAGE


def test_the_page_names_every_feature_and_field() -> None:
    for name in ("adm2", "motion2", "vif_scale0", "vif_scale3"):
        assert f"`{name}`" in PAGE
    for struct in (LearnedModel, ModelMetadata):
        for field in msgspec.structs.fields(struct):
            assert f"`{field.name}`" in PAGE
    documented = set(re.findall(r"`([a-zA-Z]+)(?:\.[a-zA-Z]+)?`", PAGE))
    assert {field.name for field in msgspec.structs.fields(VmafxModelTrainingSpec)} - documented == {"algorithm"}
