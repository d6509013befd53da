"""Settings with their defaults, without a command line."""

from typing import Any

from vmafx.settings import S, declared


def defaults(group: type[S], **values: Any) -> S:
    """A settings class with these values and the parsed defaults of all others."""
    others = {name: one.parse(one.default) for name, one in declared(group).items() if name not in values}
    return group(**others, **values)
