"""Which trainings use the scores of a node."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.api.meta import MetaView
from vmafx.api.training import DataSource, TrainingView, VmafxModelTrainingSpec
from vmafx.jobs.sample_keys import matching_trainings

LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"))


def training(name: str, source: DataSource | None = None) -> TrainingView:
    return TrainingView(MetaView(name), VmafxModelTrainingSpec("vmaf_v0.6.1", source))


@pytest.mark.parametrize("source", [None, DataSource(), DataSource({})])
def test_a_training_without_a_selector_uses_all_nodes(source: DataSource | None) -> None:
    assert matching_trainings([training("all", source)], {}) == [training("all", source)]


def test_a_training_that_is_being_deleted_wants_no_samples() -> None:
    leaving = msgspec.structs.replace(
        training("old"), metadata=MetaView("old", deletionTimestamp=datetime(2026, 1, 1, tzinfo=UTC))
    )
    assert matching_trainings([leaving, training("new")], {}) == [training("new")]


@given(LABELS, LABELS)
def test_a_selector_matches_a_node_with_all_of_its_labels(selector: dict[str, str], labels: dict[str, str]) -> None:
    matches = all(labels.get(name) == value for name, value in selector.items())
    one = training("one", DataSource(selector))
    assert matching_trainings([one], labels) == ([one] if matches else [])
