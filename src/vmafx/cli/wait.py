"""`vmafx submit --wait`: shows the state of a job on standard error until it ends, then its outcome."""

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
    """One line that is updated, on a terminal; elsewhere one line per change."""

    def __init__(self) -> None:
        self._status = Console(stderr=True).status("") if can_redraw(sys.stderr) else None
        self._open, self._last = ExitStack(), ""

    def __enter__(self) -> Self:
        if self._status is not None:
            self._open.enter_context(self._status)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def show(self, state: str, detail: str = "") -> None:
        """Show the state of the job. A new `detail` alone, such as a frame count, does not print a line."""
        text = cell(f"{state}{detail}")
        if self._status is not None:
            self._status.update(Text(text, no_wrap=True, overflow="ellipsis"))
        elif state != self._last:
            typer.echo(text, err=True)
        self._last = state


async def wait_for_end(client: Client, key: ObjectKey, version: str) -> FleetJob:
    """Follow the job from resource version `version`, and return it once it has ended."""
    waiting = asyncio.Event()
    waiting.set()
    with StatusLine() as line:
        line.show(f"job {key.name} created in namespace {key.namespace}")
        position = asyncio.create_task(_show_position(client, key, waiting, line))
        try:
            async for job in follow_job(client, key, version):
                _show_state(job, waiting, line)
        finally:
            position.cancel()
            await asyncio.gather(position, return_exceptions=True)
    return job


def _show_state(job: FleetJob, waiting: asyncio.Event, line: StatusLine) -> None:
    row = job_row(job)
    if row.phase == "Pending":
        waiting.set()
        line.show(f"{row.name} is waiting" + (f" ({row.reason}: {row.message})" if row.reason else ""))
    else:
        waiting.clear()
    if row.phase == "Running":
        line.show(f"{row.name} is running on {row.node}", f", {row.message}" if row.message else "")


async def _show_position(client: Client, key: ObjectKey, waiting: asyncio.Event, line: StatusLine) -> None:
    try:
        async for row in follow_position(client, key, waiting):
            position = "" if row.position is None else f" at position {row.position:,}"
            line.show(f"{row.name} is waiting{position} ({row.reason}: {row.message})", _estimate(row))
    except (KubeError, FleetError) as error:  # the job itself can still be followed
        line.show(f"{key.name} is waiting; its position is unknown: {error}")


def _estimate(row: QueueRow) -> str:
    if row.startsIn is None:
        return ""
    done = "" if row.doneIn is None else f", done in about {duration(row.doneIn)}"
    return f"; starts in about {duration(row.startsIn)}{done}"


def print_outcome(job: FleetJob, *, quiet: bool) -> int:
    """Print the score unless `quiet`, or the error; returns the exit code."""
    row = job_row(job)
    if row.phase == "Succeeded" and row.score is not None:
        if not quiet:
            frames = "1 frame" if row.frames == 1 else f"{row.frames or 0:,} frames"
            took = duration(elapsed(row.started, row.finished))
            typer.echo(f"VMAF {row.score:.3f}  ({frames}, {took} on {cell(row.node)}; job {cell(row.name)})")
        return 0
    typer.echo(f"error: job {cell(row.name)} failed: {cell(row.reason)}: {cell(row.message)}", err=True)
    return EXIT_BAD_INPUT if row.reason == "BadInput" else EXIT_FAILED
