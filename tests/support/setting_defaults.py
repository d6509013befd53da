"""Settings without a command line."""

from typing import Any

from vmafx.settings import S, declared


def defaults(group: type[S], **values: Any) -> S:
    """A group with these values as they are; every other setting has its default, parsed."""
    others = {name: one.parse(one.default) for name, one in declared(group).items() if name not in values}
    return group(**others, **values)
