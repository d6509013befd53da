"""A test that hangs fails at its timeout with the stack of where it waits, and later tests still run.

pytest-timeout raises in the current frame. In an event loop that is `select`, which does not show what the test waits
for, or another task, which would swallow the exception. So this plugin cancels the future that the loop runs: the
traceback is that of the test or fixture, and its cleanup runs.
"""

import asyncio
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType

import pytest
import pytest_timeout

CLEANUP_TIMEOUT = 10.0  # seconds (at most the timeout itself); then pytest-timeout raises

settings_key = pytest.StashKey[pytest_timeout.Settings]()


@pytest.hookimpl
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool | None:
    if threading.current_thread() is not threading.main_thread():
        return None  # leave it to pytest-timeout
    item.stash[settings_key] = settings
    cancelled: set[asyncio.Future[object]] = set()

    def expired(_number: int, frame: FrameType | None) -> None:
        if pytest_timeout.is_debugging():
            return
        _print_threads()
        awaited = _awaited(frame)
        if awaited is None or awaited in cancelled:
            pytest_timeout.timeout_sigalrm(item, settings)
        else:
            cancelled.add(awaited)
            awaited.get_loop().call_soon_threadsafe(awaited.cancel, f"the test took longer than {settings.timeout} s")

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    item.cancel_timeout = cancel  # type: ignore[attr-defined]
    signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout, min(settings.timeout, CLEANUP_TIMEOUT))
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> None:
    """The test has failed: cancel the timer, so that it does not fire again while pytest writes the report."""
    if call.excinfo is not None:
        item.config.hook.pytest_timeout_cancel_timer(item=item)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Restart the timer, which a failure has cancelled: teardown may hang as well."""
    if settings_key in item.stash:
        pytest_timeout_set_timer(item, item.stash[settings_key])
    return (yield)


def _awaited(frame: FrameType | None) -> "asyncio.Future[object] | None":
    """The future that the innermost event loop below this frame runs; None outside of loops."""
    while frame is not None:
        if frame.f_code is asyncio.BaseEventLoop.run_until_complete.__code__:
            future = frame.f_locals["future"]
            return future if asyncio.isfuture(future) else None
        frame = frame.f_back
    return None


def _print_threads() -> None:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for number, frame in sys._current_frames().items():
        if number != threading.main_thread().ident:
            print(f"Stack of thread {names.get(number, number)}:", file=sys.stderr)  # noqa: T201
            traceback.print_stack(frame, file=sys.stderr)
