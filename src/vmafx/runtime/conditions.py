"""Conditions of any object, as `kubectl wait --for=condition=...` reads them. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, Protocol

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


def find_condition(conditions: Iterable[Condition], kind: str) -> Condition | None:
    return next((one for one in conditions if one.type == kind), None)


def with_condition(
    about: Conditioned, kind: str, status: Truth, reason: str, message: str, now: datetime, *, restart: bool = False
) -> list[Condition]:
    """All conditions of `about`, this one as it is now; those of others stay as they are.

    Its lastTransitionTime moves when its status does; with `restart`, in any case.
    """
    made = Condition(kind, status, now, reason, message[:MAX_MESSAGE], about.metadata.generation)
    old = find_condition(about.status.conditions, kind)
    if old is None:
        return [*about.status.conditions, made]
    if old.status == status and not restart:
        made = msgspec.structs.replace(made, lastTransitionTime=old.lastTransitionTime)
    return [made if one is old else one for one in about.status.conditions]


def has_condition(about: Conditioned, kind: str, status: Truth, reason: str, message: str) -> bool:
    """Whether its status says exactly this already."""
    said = find_condition(about.status.conditions, kind)
    return said is not None and (said.status, said.reason, said.message) == (status, reason, message[:MAX_MESSAGE])
