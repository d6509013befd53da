"""Structured logs on standard error: JSON for machines, or lines for people. The level can be changed while running."""

import logging
import signal
import sys
from typing import Any, Literal, TextIO

import msgspec
import structlog
from structlog.typing import EventDict

Level = Literal["debug", "info", "warn", "error"]
Format = Literal["json", "console"]
LEVELS: tuple[Level, ...] = ("debug", "info", "warn", "error")
_RANKS = {"debug": 10, "info": 20, "warning": 30, "warn": 30, "error": 40, "exception": 40, "critical": 50}


class Threshold:
    """What is loud enough. SIGUSR1 lets debug through as well, SIGUSR2 goes back to the level of the start."""

    def __init__(self, level: Level) -> None:
        self._start = self._rank = _RANKS[level]

    def __call__(self, _logger: Any, method: str, event: EventDict) -> EventDict:
        if _RANKS[method] < self._rank:
            raise structlog.DropEvent
        return event

    def follow_signals(self) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: self._set(_RANKS["debug"]))
        signal.signal(signal.SIGUSR2, lambda *_: self._set(self._start))

    def _set(self, rank: int) -> None:
        self._rank = rank


def configure(level: Level, style: Format, out: TextIO | None = None) -> Threshold:
    """Set up the logs of this process."""
    threshold = Threshold(level)
    structlog.configure(
        processors=[
            threshold,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _json if style == "json" else _line,
        ],
        logger_factory=structlog.PrintLoggerFactory(out or sys.stderr),
        cache_logger_on_first_use=False,
    )
    # Libraries that log by the standard way say only what is wrong, and in the same place.
    logging.basicConfig(level=logging.WARNING, stream=out or sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    return threshold


def _json(_logger: Any, _method: str, event: EventDict) -> str:
    return msgspec.json.encode(event, enc_hook=str).decode()


def _line(_logger: Any, _method: str, event: EventDict) -> str:
    when, level, text = event.pop("timestamp"), event.pop("level"), event.pop("event")
    trace = event.pop("exception", "")
    rest = "".join(f"  {name}={value}" for name, value in event.items())
    return f"{when[11:23]} {level:<7} {text}{rest}" + (f"\n{trace}" if trace else "")
