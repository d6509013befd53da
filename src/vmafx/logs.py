"""Structured logs on standard error, as JSON or as plain lines. Signals change the level while the process runs.

Messages of level info are sampled: in each WINDOW, the first BURST lines of a message are written, and one line with
`suppressed=N` stands for the rest. Warnings and errors are always written; at level debug, everything is.
"""

import logging
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TextIO

import msgspec

if TYPE_CHECKING:
    import asyncio

LogLevel = Literal["debug", "info", "warn", "error"]
LogFormat = Literal["json", "console"]
LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warn", "error")
BURST, WINDOW = 50, 10.0  # lines of one message, seconds
_RANKS: dict[str, int] = {level: rank for rank, level in enumerate(LEVELS)}


class Sampler:
    """Decides which lines are written. All messages share one window; `clock` is monotonic."""

    def __init__(self, summarize: Callable[[str, int], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._summarize, self._clock = summarize, clock
        self._lines: dict[str, int] = {}  # per message
        self._ends = float("-inf")
        self._timer: asyncio.TimerHandle | None = None  # ends a window in which lines were suppressed

    def admits(self, text: str) -> bool:
        now = self._clock()
        if now >= self._ends:
            self.close()
            self._ends = now + WINDOW
        lines = self._lines[text] = self._lines.get(text, 0) + 1
        if lines > BURST and self._timer is None:
            self._timer = _call_later(self._ends - now, self.close)
        return lines <= BURST

    def close(self) -> None:
        """End the window and write a summary of each message that it suppressed."""
        if self._timer is not None:
            self._timer.cancel()
        lines, self._lines = self._lines, {}
        self._ends, self._timer = float("-inf"), None
        for text, number in lines.items():
            if number > BURST:
                self._summarize(text, number - BURST)


def _call_later(seconds: float, call: Callable[[], None]) -> "asyncio.TimerHandle | None":
    """None without an event loop in this thread: then the first line after the window ends it."""
    import asyncio  # noqa: PLC0415 - commands that log little start faster

    with suppress(RuntimeError):
        return asyncio.get_running_loop().call_later(seconds, call)
    return None


class _Sink:
    """Writes the log lines of this process."""

    def __init__(self) -> None:
        self.out: TextIO | None = None  # None: the sys.stderr of the moment
        self.rank = self.initial_rank = _RANKS["info"]
        self.style: LogFormat = "console"
        self.sampler = Sampler(self.summarize)

    def write(self, level: LogLevel, text: str, fields: dict[str, Any]) -> None:
        when = datetime.now(UTC)
        if self.style == "json":
            line = msgspec.json.encode({"time": when, "level": level, "msg": text, **fields}, enc_hook=str).decode()
        else:
            trace = fields.pop("trace", "")
            rest = "".join(f"  {name}={value}" for name, value in fields.items())
            line = f"{when:%H:%M:%S.%f} {level:<5} {text}{rest}" + (f"\n{trace}" if trace else "")
        print(line, file=self.out or sys.stderr, flush=True)

    def summarize(self, text: str, suppressed: int) -> None:
        self.write("info", text, {"suppressed": suppressed})


_sink = _Sink()


class Logger:
    """Logs constant messages with fields: `log.info("job placed", job=key, node=name)`."""

    def __init__(self, fields: dict[str, Any] | None = None) -> None:
        self._fields = fields or {}

    def bind(self, **fields: Any) -> "Logger":
        """A logger that adds these fields to every line."""
        return Logger(self._fields | fields)

    def debug(self, text: str, **fields: Any) -> None:
        self._log("debug", text, fields)

    def info(self, text: str, **fields: Any) -> None:
        self._log("info", text, fields)

    def warn(self, text: str, **fields: Any) -> None:
        self._log("warn", text, fields)

    def error(self, text: str, *, trace_of: BaseException | None = None, **fields: Any) -> None:
        """`trace_of`: an unexpected error, whose traceback is logged as the field `trace`."""
        if trace_of is not None:
            fields["trace"] = "".join(traceback.format_exception(trace_of))
        self._log("error", text, fields)

    def _log(self, level: LogLevel, text: str, fields: dict[str, Any]) -> None:
        if _RANKS[level] < _sink.rank:
            return
        if level != "info" or _sink.rank == _RANKS["debug"] or _sink.sampler.admits(text):
            _sink.write(level, text, self._fields | fields)


log = Logger()


def configure(level: LogLevel, style: LogFormat, out: TextIO | None = None) -> None:
    """Set up logging for this process and the libraries in it."""
    _sink.out, _sink.style = out, style
    _sink.rank = _sink.initial_rank = _RANKS[level]
    _sink.sampler = Sampler(_sink.summarize)
    logging.getLogger().handlers = [_LibraryHandler()]
    logging.getLogger().setLevel(logging.WARNING)


def flush() -> None:
    """Write the summaries of suppressed messages, before the process ends."""
    _sink.sampler.close()


def follow_signals() -> None:
    """SIGUSR1 sets the level to debug; SIGUSR2 restores the configured level."""

    def set_rank(rank: int) -> None:
        _sink.rank = rank

    signal.signal(signal.SIGUSR1, lambda *_: set_rank(_RANKS["debug"]))
    signal.signal(signal.SIGUSR2, lambda *_: set_rank(_sink.initial_rank))


class _LibraryHandler(logging.Handler):
    """Writes the warnings and errors that libraries log with the standard library's logging."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            log.error(record.getMessage(), logger=record.name, trace_of=record.exc_info[1])
        else:
            write = log.error if record.levelno >= logging.ERROR else log.warn
            write(record.getMessage(), logger=record.name)
