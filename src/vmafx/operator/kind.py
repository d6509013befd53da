"""What a kind declares to be reconciled: everything that the process, the RBAC roles and the docs need to know.

Each folder under operator/ has a kind.py with one `Kind`; kinds.py lists them.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from vmafx.api.meta import ConditionReason, CustomObject
from vmafx.api.rbac import Permission
from vmafx.operator.context import OperatorContext
from vmafx.settings import Settings


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """`set_up` adds the kind's informers, its reconcile loop and its leader-only tasks to the context's manager."""

    model: type[CustomObject]
    settings: type[Settings]
    permissions: tuple[Permission, ...]
    reasons: tuple[ConditionReason, ...]  # every reason that its conditions can have
    set_up: Callable[[OperatorContext, Any], None]
