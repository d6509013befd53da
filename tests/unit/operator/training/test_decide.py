"""The status of a training, decided from what is known: every case, without a cluster."""

from datetime import timedelta
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.operator.training.training_views import NOW, view
from vmafx.api.training import MAX_CHECKPOINTS, MAX_EXCLUDED, TrainingPhase, VmafxModelTrainingStatus
from vmafx.operator.training.decide import (
    QUICK_INTERVAL,
    QUICK_PERIOD,
    LiveTrainer,
    ObservedTraining,
    TrainerPoll,
    TrainingDecision,
    TrainingProblem,
    decide,
    is_changing,
    is_undecided,
    poll_interval,
    reported_fields,
)
from vmafx.operator.training.kind import TRAINING
from vmafx.training.status import CheckpointInfo, Quality, TrainerStatus

UP = LiveTrainer(1, 1, rolled_out=True)
STARTING = LiveTrainer(1)
REPLACED = LiveTrainer(2, 1)
STUCK = LiveTrainer(1, problem="quota exceeded")
DOWN = TrainerPoll(None, 2, "no route")


def answer(
    phase: TrainingPhase = "Running", failures: int = 0, trainer: LiveTrainer = UP, **fields: Any
) -> TrainerPoll:
    return TrainerPoll(TrainerStatus(phase=phase, **fields), failures, "lost" if failures else "", trainer)


def ready(decision: TrainingDecision) -> tuple[Any, str, str]:
    """Phase, status and reason of Ready."""
    condition = next(one for one in decision.conditions if one.type == "Ready")
    return decision.fields["phase"], condition.status, condition.reason


@pytest.mark.parametrize(
    ("known", "trainer", "poll", "expected"),
    [
        (None, None, TrainerPoll(), ("Initializing", "False", "Starting")),
        (None, STARTING, TrainerPoll(), ("Initializing", "False", "Starting")),
        (None, UP, DOWN, ("Initializing", "False", "TrainerUnreachable")),
        (None, UP, answer("Initializing"), ("Initializing", "False", "Starting")),
        (None, STARTING, answer("Initializing", trainer=STARTING), ("Initializing", "False", "Starting")),
        (None, UP, answer(), ("Running", "True", "Training")),
        (None, UP, answer("Paused"), ("Paused", "False", "Paused")),
        (None, UP, answer("Failed"), ("Failed", "False", "TrainerFailed")),
        (None, STARTING, answer("Failed", trainer=STARTING), ("Failed", "False", "TrainerFailed")),
        (None, STUCK, DOWN, ("Failed", "False", "RolloutStuck")),
        ("Running", STUCK, answer(), ("Running", "False", "RolloutStuck")),
        ("Running", STUCK, answer("Initializing"), ("Initializing", "False", "Starting")),  # the trainer knows more
        ("Running", STARTING, DOWN, ("Running", "False", "Starting")),
        ("Paused", STARTING, DOWN, ("Paused", "False", "Starting")),
        ("Failed", STARTING, DOWN, ("Initializing", "False", "Starting")),
        ("Running", UP, DOWN, ("Running", "False", "TrainerUnreachable")),
        ("Failed", UP, DOWN, ("Failed", "False", "TrainerUnreachable")),
        ("Running", UP, answer(failures=1), ("Running", "True", "Training")),
        ("Running", UP, answer(failures=2), ("Running", "False", "TrainerUnreachable")),
    ],
)
def test_phase_and_readiness(
    known: str | None, trainer: LiveTrainer | None, poll: TrainerPoll, expected: tuple[str, str, str]
) -> None:
    state = ObservedTraining(training=view({"phase": known} if known else {}), trainer=trainer, poll=poll)
    assert ready(decide(state)) == expected


@pytest.mark.parametrize("phase", ["Running", "Paused"])
@pytest.mark.parametrize(
    ("trainer", "asked"),
    [
        (REPLACED, UP),
        (REPLACED, REPLACED),  # answered by the Pod that ends
        (LiveTrainer(2, 1, rolled_out=True), REPLACED),
        (LiveTrainer(2, 1, rolled_out=True), UP),
    ],
)
def test_a_changed_spec_is_not_ready_before_its_trainer_has_answered(
    trainer: LiveTrainer, asked: LiveTrainer, phase: TrainingPhase
) -> None:
    poll = answer(phase, trainer=asked, samples=7)
    state = ObservedTraining(training=view({"phase": phase}, paused=phase == "Paused"), trainer=trainer, poll=poll)
    decision = decide(state)
    assert ready(decision) == (phase, "False", "Starting")
    assert decision.fields["currentSamples"] == 7
    assert is_changing(state)


def test_a_pod_that_is_not_ready_for_a_while_keeps_its_answer() -> None:
    state = ObservedTraining(training=view(), trainer=LiveTrainer(1, 0, rolled_out=True), poll=answer())
    assert ready(decide(state)) == ("Running", "True", "Training")


def test_a_storage_problem_is_shown_while_the_trainer_learns() -> None:
    text = "cannot store samples: No space left on device"
    state = ObservedTraining(training=view(), trainer=UP, poll=answer(message=text, degraded=text))
    (condition,) = [one for one in decide(state).conditions if one.type == "Degraded"]
    assert (condition.status, condition.reason, condition.message) == ("True", "StorageProblem", text)
    assert ready(decide(state)) == ("Running", "True", "Training")


def test_a_volume_that_is_being_deleted_is_shown_while_the_trainer_learns() -> None:
    state = ObservedTraining(training=view(), trainer=UP, poll=answer(), waiting="it is being deleted", deleting=True)
    decision = decide(state)
    assert [one.message for one in decision.conditions if one.type == "Degraded"] == ["it is being deleted"]
    assert ready(decision) == ("Running", "True", "Training")
    assert decision.fields["message"].endswith("; it is being deleted")


def test_the_message_does_not_change_with_every_sample() -> None:
    states = [ObservedTraining(training=view(), trainer=UP, poll=answer(samples=count)) for count in (1, 2)]
    assert len({decide(state).fields["message"] for state in states}) == 1


@pytest.mark.parametrize(
    ("known", "poll", "phase"),
    [(None, TrainerPoll(), "Failed"), ("Running", DOWN, "Running"), (None, answer(), "Running")],
)
def test_a_problem_is_the_reason_and_fails_a_training_that_never_ran(
    known: str | None, poll: TrainerPoll, phase: str
) -> None:
    problems = (TrainingProblem("NameTaken", "a"), TrainingProblem("Refused", "b"))
    training = view({"phase": known} if known else {})
    decision = decide(ObservedTraining(training=training, trainer=UP, poll=poll, problems=problems, notes=("c",)))
    assert ready(decision) == (phase, "False", "NameTaken")
    assert decision.fields["message"] == "a; b; c"


def test_an_unreachable_trainer_changes_nothing_that_it_reported() -> None:
    decision = decide(ObservedTraining(training=view({"phase": "Running"}), trainer=UP, poll=DOWN))
    assert decision.fields.keys() == {"phase", "message", "observedGeneration"}
    assert [one.type for one in decision.conditions] == ["Ready"]
    assert decision.fields["message"] == "the trainer does not answer: no route"


def test_what_is_waited_for_is_said() -> None:
    decision = decide(ObservedTraining(training=view(), waiting="waiting for the old claim"))
    assert decision.fields["message"] == "waiting for the old claim"


@pytest.mark.parametrize(
    ("poll", "trainer", "undecided"),
    [
        (TrainerPoll(), UP, True),
        (TrainerPoll(None, 1, "x"), UP, True),
        (DOWN, UP, False),
        (answer(), UP, False),
        (TrainerPoll(), STARTING, False),
        (TrainerPoll(), None, False),
    ],
)
def test_nothing_is_decided_before_a_running_trainer_was_asked(
    poll: TrainerPoll, trainer: LiveTrainer | None, undecided: bool
) -> None:
    assert is_undecided(ObservedTraining(training=view(), trainer=trainer, poll=poll)) is undecided
    problem = (TrainingProblem("NoImage", ""),)
    assert not is_undecided(ObservedTraining(training=view(), trainer=trainer, poll=poll, problems=problem))


@pytest.mark.parametrize(
    ("poll", "changing", "quick_for", "quick"),
    [
        (TrainerPoll(), False, 0.0, True),
        (answer("Initializing"), False, 0.0, True),
        (answer(failures=1), False, 0.0, True),
        (answer(), False, 0.0, False),
        (answer(), True, 0.0, True),
        (answer(), True, QUICK_PERIOD, False),
        (DOWN, False, QUICK_PERIOD, False),
    ],
)
def test_a_status_that_may_change_is_read_often_for_a_while(
    poll: TrainerPoll, changing: bool, quick_for: float, quick: bool
) -> None:
    assert poll_interval(poll, quick_for, 60.0, changing=changing) == (QUICK_INTERVAL if quick else 60.0)


@pytest.mark.parametrize(
    ("phase", "paused", "trainer", "changing"),
    [
        ("Running", False, UP, False),
        ("Running", True, UP, True),
        ("Paused", True, UP, False),
        ("Paused", False, UP, True),
        ("Failed", True, UP, False),
        ("Running", False, STARTING, True),
        ("Running", False, None, True),
    ],
)
def test_a_trainer_that_is_replaced_paused_or_resumed_is_changing(
    phase: TrainingPhase, paused: bool, trainer: LiveTrainer | None, changing: bool
) -> None:
    poll = answer(phase)
    assert is_changing(ObservedTraining(training=view(paused=paused), trainer=trainer, poll=poll)) is changing


def test_the_latest_version_is_that_of_the_last_checkpoint() -> None:
    checkpoints = tuple(
        CheckpointInfo(number, f"sha256:{number}", NOW + timedelta(minutes=number), 10 * number)
        for number in range(1, MAX_CHECKPOINTS + 3)
    )
    fields = reported_fields(TrainerStatus(phase="Running", checkpoints=checkpoints))
    assert len(fields.checkpoints) == MAX_CHECKPOINTS
    assert (fields.modelVersion, fields.lastCheckpoint) == (checkpoints[-1].digest, checkpoints[-1].time)


def test_only_so_many_excluded_nodes_are_listed() -> None:
    nodes = {f"node-{number:03}": "garbage" for number in range(MAX_EXCLUDED + 5)}
    fields = reported_fields(TrainerStatus(phase="Running", excluded_nodes=nodes))
    assert [one.name for one in fields.excludedNodes] == sorted(nodes)[:MAX_EXCLUDED]


@pytest.mark.parametrize(
    "fields",
    [
        {"samples": -1},
        {"samples": 2**60},
        {"damaged": -1},
        {"last_sample": NOW.replace(tzinfo=None)},
        {"excluded_nodes": {"x" * 300: ""}},
        {"checkpoints": (CheckpointInfo(2, "b", NOW, 1), CheckpointInfo(1, "a", NOW, 1))},
        {"checkpoints": (CheckpointInfo(1, "a", NOW, 1), CheckpointInfo(1, "b", NOW, 1))},
        {"checkpoints": (CheckpointInfo(-1, "a", NOW, 1),)},
        {"checkpoints": (CheckpointInfo(1, "x" * 300, NOW, 1),)},
    ],
)
def test_what_the_server_would_refuse_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        reported_fields(TrainerStatus(phase="Running", **fields))


NUMBERS = st.none() | st.floats(-1e6, 1e6)
QUALITY = st.builds(Quality, NUMBERS, NUMBERS, NUMBERS)
CHECKPOINTS = st.lists(
    st.builds(
        CheckpointInfo, st.just(0), st.text(max_size=80), st.just(NOW), st.integers(0, 10**9), QUALITY, st.booleans()
    ),
    max_size=5,
).map(lambda found: tuple(msgspec.structs.replace(one, number=number) for number, one in enumerate(found, 1)))
STATUSES = st.builds(
    TrainerStatus,
    phase=st.sampled_from(get_args(TrainingPhase)),
    message=st.text(),
    samples=st.integers(0, 10**12),
    quality=QUALITY,
    learning_rate=st.floats(0, 1),
    last_sample=st.none() | st.just(NOW),
    stale=st.booleans(),
    diverged=st.text(),
    degraded=st.text(),
    checkpoints=CHECKPOINTS,
    publish_error=st.text(),
    excluded_nodes=st.dictionaries(st.text(min_size=1, max_size=60), st.text(), max_size=4),
    damaged=st.integers(0, 10**6),
)
LIVE = st.none() | st.builds(
    LiveTrainer, st.integers(1, 2), st.integers(0, 1), st.booleans(), st.sampled_from(["", "stuck"])
)
STATES = st.builds(
    ObservedTraining,
    training=st.builds(
        view,
        st.fixed_dictionaries({}, optional={"phase": st.sampled_from(get_args(TrainingPhase))}),
        paused=st.booleans(),
        outputRegistry=st.sampled_from(["registry.example.com/models/a"]) | st.none(),
    ),
    trainer=LIVE,
    poll=st.builds(TrainerPoll, st.none() | STATUSES, st.integers(0, 3), st.text(), LIVE),
    problems=st.lists(
        st.builds(TrainingProblem, st.sampled_from(["NoImage", "NameTaken", "Refused"]), st.text()), max_size=2
    ).map(tuple),
    notes=st.lists(st.text(), max_size=2).map(tuple),
    waiting=st.text(),
    deleting=st.booleans(),
)
DECLARED = {(one.condition, one.status, one.reason) for one in TRAINING.reasons}


@given(STATES)
def test_every_decision_is_coherent(state: ObservedTraining) -> None:
    decision = decide(state)
    fields, conditions = decision.fields, {one.type: one for one in decision.conditions}
    assert {(one.type, one.status, one.reason) for one in decision.conditions} <= DECLARED
    msgspec.convert(msgspec.to_builtins(fields), VmafxModelTrainingStatus)  # the server accepts it
    ready = conditions["Ready"]
    assert fields["message"] == (ready.message or None)
    assert (ready.status == "True") == (ready.reason == "Training")
    if ready.status == "True":
        assert fields["phase"] == "Running"
        assert not state.problems
        assert state.answered
    if state.problems:
        assert ready.reason == state.problems[0].reason
    if not state.poll.reachable:
        assert set(conditions) == {"Ready"}
        assert "currentSamples" not in fields
        assert fields["phase"] in {state.training.status.phase, "Initializing", "Failed"}
    else:
        status = state.poll.status
        assert status is not None
        assert fields["phase"] == status.phase
        assert (fields["modelVersion"] is None) == (not status.checkpoints)
        assert (conditions["Stale"].status == "True") == status.stale
        assert (conditions["Diverged"].status == "True") == bool(status.diverged)
        if conditions["Published"].status == "True":
            assert fields["checkpoints"][-1].pushed
            assert state.training.spec.outputRegistry is not None
