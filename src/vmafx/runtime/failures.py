"""What ended a process."""

from collections.abc import Iterator


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The errors themselves, out of the groups that the tasks wrapped them in."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error
