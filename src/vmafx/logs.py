"""Structured logs on standard error: JSON for machines, or lines for people. The level can be changed while running.

Messages of level info are sampled: of each, the first BURST lines of a WINDOW are written, and one with `suppressed=N`
stands for the rest. Warnings and errors are always written; at level debug, so is everything.

Small and our own: structlog takes 60 ms and 5 MiB to import, a tenth of the operator.
"""

import logging
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

import msgspec

LogLevel = Literal["debug", "info", "warn", "error"]
LogFormat = Literal["json", "console"]
LEVELS: tuple[LogLevel, ...] = ("debug", "info", "warn", "error")
BURST, WINDOW = 50, 10.0  # lines of one message, in so many seconds
_RANKS: dict[str, int] = {level: rank for rank, level in enumerate(LEVELS)}


class Sampler:
    """Decides which lines are written. One window serves all messages; `clock` only goes forward."""

    def __init__(self, summarize: Callable[[str, int], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._summarize, self._clock = summarize, clock
        self._lines: dict[str, int] = {}  # by message
        self._ends = float("-inf")
        self._timed = False

    def admits(self, text: str) -> bool:
        now = self._clock()
        if now >= self._ends:
            self.close()
            self._ends = now + WINDOW
        lines = self._lines[text] = self._lines.get(text, 0) + 1
        if lines > BURST and not self._timed:
            self._timed = True
            _call_later(self._ends - now, self.close)
        return lines <= BURST

    def close(self) -> None:
        """End the window, and summarize what it suppressed."""
        lines, self._lines = self._lines, {}
        self._ends, self._timed = float("-inf"), False
        for text, number in tuple(lines.items()):
            if number > BURST:
                self._summarize(text, number - BURST)


def _call_later(seconds: float, call: Callable[[], None]) -> None:
    """Without an event loop in this thread, the next line after the window ends it."""
    import asyncio  # noqa: PLC0415 - commands that log little start faster without it

    with suppress(RuntimeError):
        asyncio.get_running_loop().call_later(seconds, call)


class _Sink:
    """Where the logs of this process go; what is not loud enough goes nowhere."""

    def __init__(self) -> None:
        self.out: TextIO | None = None  # None: standard error, as it is when something is written
        self.rank = self.first_rank = _RANKS["info"]
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
    """Says things with their particulars: `log.info("placed", job=key, node=name)`."""

    def __init__(self, fields: dict[str, Any] | None = None) -> None:
        self._fields = fields or {}

    def bind(self, **fields: Any) -> "Logger":
        """A logger that adds these to everything it says."""
        return Logger(self._fields | fields)

    def debug(self, text: str, **fields: Any) -> None:
        self._say("debug", text, fields)

    def info(self, text: str, **fields: Any) -> None:
        self._say("info", text, fields)

    def warn(self, text: str, **fields: Any) -> None:
        self._say("warn", text, fields)

    def error(self, text: str, *, trace_of: BaseException | None = None, **fields: Any) -> None:
        """`trace_of`: an error that nobody foresaw, told with where it came from."""
        if trace_of is not None:
            fields["trace"] = "".join(traceback.format_exception(trace_of))
        self._say("error", text, fields)

    def _say(self, level: LogLevel, text: str, fields: dict[str, Any]) -> None:
        if _RANKS[level] < _sink.rank:
            return
        if level != "info" or _sink.rank == _RANKS["debug"] or _sink.sampler.admits(text):
            _sink.write(level, text, self._fields | fields)


log = Logger()


def configure(level: LogLevel, style: LogFormat, out: TextIO | None = None) -> None:
    """Set up the logs of this process."""
    _sink.out, _sink.style = out, style
    _sink.rank = _sink.first_rank = _RANKS[level]
    _sink.sampler = Sampler(_sink.summarize)
    logging.getLogger().handlers = [_Foreign()]  # libraries speak the same way, and only of trouble
    logging.getLogger().setLevel(logging.WARNING)


def flush() -> None:
    """Write the summaries of what was suppressed, before the process ends."""
    _sink.sampler.close()


def follow_signals() -> None:
    """SIGUSR1 lets debug through as well; SIGUSR2 goes back to the level of the start."""

    def set_rank(rank: int) -> None:
        _sink.rank = rank

    signal.signal(signal.SIGUSR1, lambda *_: set_rank(_RANKS["debug"]))
    signal.signal(signal.SIGUSR2, lambda *_: set_rank(_sink.first_rank))


class _Foreign(logging.Handler):
    """What libraries log by the standard way."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            log.error(record.getMessage(), logger=record.name, trace_of=record.exc_info[1])
        else:
            say = log.error if record.levelno >= logging.ERROR else log.warn
            say(record.getMessage(), logger=record.name)
