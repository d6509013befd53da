"""Runs a role as a process: its signals, its logs, its exit code and the files that it may open."""

import asyncio
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from vmafx import logs
from vmafx.logs import log

RoleMain = Callable[[asyncio.Event], Coroutine[Any, Any, None]]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def run_role(
    name: str, main: RoleMain, expected: tuple[type[Exception], ...], loop_factory: LoopFactory | None = None
) -> None:
    """Run `main` with an event that SIGTERM or Ctrl-C sets. Log expected errors and exit with code 1."""
    logs.follow_signals()
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(_run_until_signal(main))
    except* expected as group:
        for error in _flatten(group):
            log.error("exiting", role=name, error=str(error))
        sys.exit(1)
    finally:
        logs.flush()


def raise_descriptor_limit() -> None:
    """Let this process open as many files and connections as the hard limit allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # macOS accepts no unlimited number
        log.debug("could not raise the limit of open files", error=str(error))


def open_files_limit() -> int:
    """The files and connections that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


async def _run_until_signal(main: RoleMain) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await main(stop)


def _flatten(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The errors in the nested groups that task groups raise."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _flatten(error)
        else:
            yield error
