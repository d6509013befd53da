"""Reset ignored or blocked signals, which every child process would inherit from pytest."""

import signal
from types import FrameType

ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)  # SIGPIPE is restored by subprocess itself


def default_signals() -> None:
    """Let children start with the default actions, as from a shell.

    A shell starts background jobs with SIGINT and SIGQUIT ignored, nohup with SIGHUP. A handler that does nothing
    ignores the signal here as before, and is not inherited.
    """
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    pass
