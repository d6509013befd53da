"""Nodes that send unusable samples are excluded for a while."""

from datetime import UTC, datetime, timedelta

from vmafx.api.training import MAX_EXCLUDED
from vmafx.training.exclusion import EXCLUDED_FOR, MAX_STRIKES, NodeExclusion

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def excluded(node: str = "n") -> NodeExclusion:
    exclusion = NodeExclusion()
    for number in range(MAX_STRIKES):
        exclusion.strike(node, f"attempt-{number}", "NaN", NOW)
    return exclusion


def test_unusable_batches_in_a_row_exclude_a_node() -> None:
    exclusion = NodeExclusion()
    struck = [exclusion.strike("n", f"attempt-{number}", "NaN", NOW) for number in range(MAX_STRIKES)]
    assert struck == [False] * (MAX_STRIKES - 1) + [True]
    assert exclusion.reason("n", NOW) == "NaN"
    assert exclusion.reason("other", NOW) is None
    assert exclusion.excluded(NOW) == {"n": "NaN"}


def test_a_usable_batch_resets_the_count() -> None:
    exclusion = NodeExclusion()
    for number in range(5 * MAX_STRIKES):
        assert not exclusion.strike("n", f"attempt-{number}", "NaN", NOW)
        exclusion.reset("n")


def test_a_batch_that_is_sent_again_counts_once() -> None:
    exclusion = NodeExclusion()
    assert not any(exclusion.strike("n", "attempt", "NaN", NOW) for _ in range(5 * MAX_STRIKES))


def test_an_excluded_node_gets_one_more_chance() -> None:
    exclusion, later = excluded(), NOW + EXCLUDED_FOR
    assert exclusion.reason("n", later - timedelta(seconds=1)) == "NaN"
    assert exclusion.reason("n", later) is None
    assert exclusion.excluded(later) == {}
    assert exclusion.strike("n", "later", "too short", later)
    assert exclusion.reason("n", later) == "too short"


def test_the_state_survives_a_restart() -> None:
    restored = NodeExclusion.restore(excluded().state())
    assert restored.excluded(NOW) == {"n": "NaN"}


def test_the_number_of_nodes_is_bounded() -> None:
    exclusion = excluded("first")
    for number in range(MAX_EXCLUDED):
        exclusion.strike(f"n{number}", "attempt", "NaN", NOW)
    assert exclusion.excluded(NOW) == {}
    assert len(exclusion._failures) == MAX_EXCLUDED
