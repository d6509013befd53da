"""The conditions of an object's status, as `kubectl wait --for=condition=...` reads them. Pure."""

from collections.abc import Container, Iterable
from datetime import datetime
from typing import Literal, NamedTuple, Protocol

import msgspec

from vmafx.api.meta import Condition

MAX_MESSAGE = 1024  # characters
Truth = Literal["True", "False", "Unknown"]


class _Meta(Protocol):
    @property
    def generation(self) -> int: ...


class _Status(Protocol):
    @property
    def conditions(self) -> tuple[Condition, ...]: ...


class Conditioned(Protocol):
    """Any object whose status has conditions."""

    @property
    def metadata(self) -> _Meta: ...
    @property
    def status(self) -> _Status: ...


class NewCondition(NamedTuple):
    """A condition as a reconciler decides it, without times."""

    type: str
    status: Truth
    reason: str
    message: str


def find_condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == kind), None)


def with_condition(
    about: Conditioned, kind: str, status: Truth, reason: str, message: str, now: datetime, *, restart: bool = False
) -> list[Condition]:
    """All conditions of `about`, with the condition of type `kind` set or replaced.

    Its lastTransitionTime changes only with its status, or always with `restart`.
    """
    new = Condition(kind, status, now, reason, message[:MAX_MESSAGE], about.metadata.generation)
    old = find_condition(about.status.conditions, kind)
    if old is None:
        return [*about.status.conditions, new]
    if old.status == status and not restart:
        new = msgspec.structs.replace(new, lastTransitionTime=old.lastTransitionTime)
    return [new if condition is old else condition for condition in about.status.conditions]


def with_conditions(
    about: Conditioned, wanted: Iterable[NewCondition], owned: Container[str], now: datetime
) -> tuple[Condition, ...]:
    """The conditions of `about`, with those of the types in `owned` replaced by `wanted`; others stay.

    A lastTransitionTime changes only with its status.
    """
    conditions = [condition for condition in about.status.conditions if condition.type not in owned]
    for new in wanted:
        old = find_condition(about.status.conditions, new.type)
        since = old.lastTransitionTime if old is not None and old.status == new.status else now
        message = new.message[:MAX_MESSAGE]
        conditions.append(Condition(new.type, new.status, since, new.reason, message, about.metadata.generation))
    return tuple(conditions)


def has_condition(about: Conditioned, kind: str, status: Truth, reason: str, message: str) -> bool:
    """Whether the status already has this condition with this status, reason and message."""
    found = find_condition(about.status.conditions, kind)
    return found is not None and (found.status, found.reason, found.message) == (status, reason, message[:MAX_MESSAGE])
