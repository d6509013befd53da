"""`vmafx submit --wait`: shows what a job is doing on standard error, and how it ended."""

import asyncio
import sys
from contextlib import ExitStack
from typing import Self

import typer
from rich.console import Console
from rich.text import Text

from vmafx.cli.tables import cell, duration, elapsed
from vmafx.cli.terminal import can_redraw
from vmafx.fleet.errors import FleetError
from vmafx.fleet.queue import QueueRow
from vmafx.fleet.reader import FleetJob
from vmafx.fleet.rows import job_row
from vmafx.fleet.watch import follow_job, follow_position
from vmafx.kube import Client, ObjectKey
from vmafx.kube.errors import KubeError

EXIT_BAD_INPUT, EXIT_FAILED = 2, 1


class StatusLine:
    """On a terminal one line that changes; elsewhere a line for each piece of news."""

    def __init__(self) -> None:
        self._status = Console(stderr=True).status("") if can_redraw(sys.stderr) else None
        self._open, self._said = ExitStack(), ""

    def __enter__(self) -> Self:
        if self._status is not None:
            self._open.enter_context(self._status)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def say(self, news: str, detail: str = "") -> None:
        """`detail` may change at any moment, and is no news."""
        text = cell(f"{news}{detail}")
        if self._status is not None:
            self._status.update(Text(text, no_wrap=True, overflow="ellipsis"))
        elif news != self._said:
            typer.echo(text, err=True)
        self._said = news


async def wait_for_end(client: Client, key: ObjectKey, version: str) -> FleetJob:
    """The job as it is at its end."""
    waits = asyncio.Event()
    waits.set()
    with StatusLine() as line:
        line.say(f"job {key.name} created in namespace {key.namespace}")
        ahead = asyncio.create_task(_tell_places(client, key, waits, line))
        try:
            async for job in follow_job(client, key, version):
                _tell_state(job, waits, line)
        finally:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)
    return job


def _tell_state(job: FleetJob, waits: asyncio.Event, line: StatusLine) -> None:
    row = job_row(job)
    if row.phase == "Pending":
        waits.set()
        line.say(f"{row.name} is waiting" + (f" ({row.reason}: {row.message})" if row.reason else ""))
    else:
        waits.clear()
    if row.phase == "Running":
        line.say(f"{row.name} is running on {row.node}", f", {row.message}" if row.message else "")


async def _tell_places(client: Client, key: ObjectKey, waits: asyncio.Event, line: StatusLine) -> None:
    try:
        async for row in follow_position(client, key, waits):
            position = "" if row.position is None else f" at position {row.position:,}"
            line.say(f"{row.name} is waiting{position} ({row.reason}: {row.message})", _times(row))
    except (KubeError, FleetError) as error:  # the job can be followed all the same
        line.say(f"{key.name} is waiting; its position is unknown: {error}")


def print_outcome(job: FleetJob, *, quiet: bool) -> int:
    """Print the score unless that is to be `quiet`, or why there is none; the exit code says the same."""
    row = job_row(job)
    if row.phase == "Succeeded" and row.score is not None:
        if not quiet:
            frames = "1 frame" if row.frames == 1 else f"{row.frames or 0:,} frames"
            took = duration(elapsed(row.started, row.finished))
            typer.echo(f"VMAF {row.score:.3f}  ({frames}, {took} on {cell(row.node)}; job {cell(row.name)})")
        return 0
    typer.echo(f"error: job {cell(row.name)} failed: {cell(row.reason)}: {cell(row.message)}", err=True)
    return EXIT_BAD_INPUT if row.reason == "BadInput" else EXIT_FAILED


def _times(row: QueueRow) -> str:
    if row.startsIn is None:
        return ""
    done = "" if row.doneIn is None else f", done in about {duration(row.doneIn)}"
    return f"; starts in about {duration(row.startsIn)}{done}"
