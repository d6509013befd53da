"""How far it is, now and then: a line of log for people, and a line of a file for the agent."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from vmafx.logs import log
from vmafx.scoring.result import Progress
from vmafx.scoring.score import Listener

LOG_EVERY, WRITE_EVERY = 10.0, 1.0  # seconds


@contextmanager
def told(path: str) -> Iterator[Listener]:
    """A listener for as long as the score takes. A file that cannot be written is no reason not to score."""
    with ExitStack() as stack:
        file: BinaryIO | None = None
        if path:
            try:
                file = stack.enter_context(Path(path).open("ab", buffering=0))
            except OSError as error:
                log.warn("progress cannot be written", file=path, error=error.strerror)
        yield _listener(file)


def _listener(file: BinaryIO | None) -> Listener:
    logged = time.monotonic()
    written = 0.0

    def hear(progress: Progress) -> None:
        nonlocal logged, written
        now = time.monotonic()
        if now - logged >= LOG_EVERY:
            logged = now
            log.info(progress.stage, done=progress.done, total=progress.total, fps=round(progress.fps, 2))
        last = progress.stage == "scoring" and progress.done == progress.total  # tells how fast all of it was
        if file is not None and (last or now - written >= WRITE_EVERY):
            written = now
            with suppress(OSError):
                file.write(msgspec.json.encode(progress) + b"\n")

    return hear
