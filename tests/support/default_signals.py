"""Signals as tests expect them, whoever started pytest: a signal that is ignored or blocked stays so in every child."""

import signal
from types import FrameType

ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)  # SIGPIPE is restored by subprocess itself


def default_signals() -> None:
    """Let children start with the default actions, as from a person's shell.

    A shell starts background jobs with SIGINT and SIGQUIT ignored, nohup with SIGHUP. A handler that does nothing
    ignores the signal here as before, and is not inherited.
    """
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)


def _ignore(_number: int, _frame: FrameType | None) -> None:
    pass
