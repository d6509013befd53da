"""A role as a process: its log, its signals, and how it ends."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from vmafx import logs
from vmafx.logs import log

RoleMain = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run_role(
    name: str, work: RoleMain, foreseen: tuple[type[Exception], ...], loops: LoopFactory | None = None
) -> None:
    """Run until SIGTERM or Ctrl-C sets the event that `work` gets; exit code 1 if a foreseen error ends it before."""
    logs.follow_signals()
    try:
        with asyncio.Runner(loop_factory=loops) as runner:
            runner.run(_until_told(work))
    except* foreseen as failures:
        for error in _leaves(failures):
            log.error(f"the {name} ends", error=str(error))
        sys.exit(1)
    finally:
        logs.flush()


async def _until_told(work: RoleMain) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await work(stop)


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The errors themselves, out of the groups that the tasks wrapped them in."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
