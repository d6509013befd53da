"""The contract of a kind that the operator reconciles: all that the process, the roles and the docs need to know of it.

Each folder under operator/ has a kind.py that makes one, and kinds.py lists them.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from vmafx.api.meta import ConditionReason, CustomObject
from vmafx.api.rbac import Permission
from vmafx.operator.context import OperatorContext
from vmafx.settings import Settings


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """`set_up` adds its caches, its reconciler and what only a leader does to the context's manager."""

    model: type[CustomObject]
    settings: type[Settings]
    permissions: tuple[Permission, ...]
    reasons: tuple[ConditionReason, ...]  # of its conditions: every one that is written, and what it means
    set_up: Callable[[OperatorContext, Any], None]
