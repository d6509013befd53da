"""What the commands of vmaf-tune share: flags, checks of them, and where results go."""

import asyncio
import math
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from vmafx.atomic_write import write_atomic, write_atomic_with
from vmafx.cli.score import EXIT_BELOW_THRESHOLD, EXIT_ENGINE, error_line, exit_code
from vmafx.cli.tune_cluster import ClusterFlags, cluster_scoring
from vmafx.cli.tune_progress import TuneDisplay
from vmafx.scoring.cache import ResultCache
from vmafx.scoring.errors import DISK_ERRORS, BadInput, NodeFault, ScoringError
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.request import Source
from vmafx.scoring.score import Scorer
from vmafx.tune.compare import TuneSettings, Workshop, open_source
from vmafx.tune.encoding import EncoderTools
from vmafx.tune.outputs import Figures, Verdict, as_junit, check_gateway, push
from vmafx.tune.results import EncodeResult
from vmafx.tune.work_folder import WorkFolder

RESULTS, EXECUTION = "Results", "Execution"

SourceArgument = Annotated[str, typer.Argument(help="Clip to encode: a path or URI.", metavar="SOURCE")]
ModelFlag = Annotated[
    str, typer.Option("--model", metavar="MODEL", help="VMAF model to score with.", rich_help_panel=EXECUTION)
]
PoolingFlag = Annotated[
    str,
    typer.Option(
        "--pool", "--pooling", metavar="METHOD", help="How to pool scores of frames.", rich_help_panel=EXECUTION
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel=RESULTS)]
JunitFlag = Annotated[
    Path | None,
    typer.Option("--junit", metavar="FILE", help="Write the outcome as JUnit XML, for CI.", rich_help_panel=RESULTS),
]
PushgatewayFlag = Annotated[
    str,
    typer.Option(
        "--pushgateway",
        metavar="URL",
        help="Push the figures to this Prometheus Pushgateway.",
        envvar="VMAFX_PUSHGATEWAY",
        rich_help_panel=RESULTS,
    ),
]
WorkFlag = Annotated[
    Path | None,
    typer.Option(
        "--work",
        metavar="FOLDER",
        help="Folder of finished encodes, which are not made again (default: ~/.cache/vmafx/tune).",
        rich_help_panel=EXECUTION,
    ),
]
ParallelFlag = Annotated[
    int,
    typer.Option(
        "--parallel",
        min=0,
        max=256,
        metavar="N",
        help="Encodes at the same time (0: one for every four cores).",
        rich_help_panel=EXECUTION,
    ),
]
QuietFlag = Annotated[bool, typer.Option("--quiet", help="Do not show progress.", rich_help_panel=EXECUTION)]


class Destinations(NamedTuple):
    """Where a result goes, and the score that it must reach."""

    reports: Sequence[Path]
    junit: Path | None
    encodes: Path | None
    gateway: str
    floor: float | None
    json: bool

    def check(self, endings: Sequence[str]) -> None:
        """Raise BadInput for what would fail after the encodes; `endings` are those of reports."""
        for path in self.reports:
            if path.suffix.lower() not in endings:
                allowed = f"{', '.join(endings[:-1])} or {endings[-1]}"
                raise BadInput("options", f"the name of report {path} must end in {allowed}")
        check_folders((*self.reports, *filter(None, [self.junit])))
        if self.encodes is not None and self.encodes.exists() and not self.encodes.is_dir():
            raise BadInput("options", f"--output {self.encodes} is not a folder")
        check_score("--fail-under", self.floor)
        if self.gateway:
            check_gateway(self.gateway)

    def deliver(self, result: "Deliverable") -> int:
        """Print and write all; returns the exit code. Problems are printed before anything else can fail."""
        _print_safely(result.as_json if self.json else None, result.show)
        for verdict in result.verdicts:
            if verdict.problem:
                kind = "error" if verdict.failed else "below target"
                typer.echo(f"{kind}: {verdict.name}: {' '.join(verdict.problem.split())}", err=True)
        if self.encodes is not None:
            copy_encodes(result.encodes, self.encodes)
        for path in self.reports:
            write(path, result.render(path))
        if self.junit is not None:
            write(self.junit, as_junit(result.source, result.verdicts))
        if self.gateway:
            push(result.source, result.figures, self.gateway)
        if any(one.failed for one in result.verdicts):
            return EXIT_ENGINE
        return EXIT_BELOW_THRESHOLD if any(one.problem for one in result.verdicts) else 0


class Deliverable(NamedTuple):
    """A result in all forms. `encodes` are those to copy, with their names there."""

    source: str
    show: Callable[[], None]
    as_json: Callable[[], bytes]
    render: Callable[[Path], bytes]
    encodes: Sequence[tuple[str, EncodeResult]]
    figures: Sequence[Figures]
    verdicts: Sequence[Verdict]


def _print_safely(as_json: Callable[[], bytes] | None, show: Callable[[], None]) -> None:
    """Raises NodeFault if standard output cannot be written: no exit code of a result may be that of such an error."""
    try:
        if as_json is not None:
            typer.echo(as_json().decode(), nl=False)
        else:
            show()
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left would fail again at the exit
        raise NodeFault(f"cannot print the result: {error.strerror}") from error


def run_tuning(work: Callable[[], int]) -> None:
    """Run a command, and end with its exit code; an error that is expected becomes a line and an exit code."""
    try:
        code = work()
    except ScoringError as error:
        typer.echo(error_line(error), err=True)
        code = exit_code(error)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    raise typer.Exit(code)


class Place(NamedTuple):
    """Where encodes are kept and scored, and what shows how far jobs are."""

    folder: WorkFolder
    cluster: ClusterFlags
    display: TuneDisplay


@asynccontextmanager
async def workshop(source: str, tools: EncoderTools, settings: TuneSettings, place: Place) -> AsyncIterator[Workshop]:
    """What encodes and scores the source, until the context ends."""
    policy = MediaPolicy.from_environ(os.environ)
    scorer = Scorer(policy=policy, cache=ResultCache())
    async with (
        place.folder.in_use(),
        open_source(scorer, Source(source)) as opened,
        cluster_scoring(place.cluster, opened, settings.options, policy, place.display.show_jobs) as remote,
    ):
        yield Workshop(opened, scorer, tools, place.folder, settings, remote)


def end_on_sigterm() -> None:
    """Let SIGTERM cancel the current task, so that the command cleans up."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def check_score(option: str, value: float | None) -> float | None:
    if value is not None and not (math.isfinite(value) and 0 <= value <= 100):
        raise BadInput("options", f"{option} must be 0 to 100, not {value}")
    return value


def check_folders(paths: Iterable[Path]) -> None:
    """Raise BadInput for files that could not be written."""
    for path in paths:
        if not path.parent.is_dir():
            raise BadInput("options", f"the folder {path.parent} does not exist; create it")
        if path.is_dir():
            raise BadInput("options", f"{path} is a folder; name a file in it")


def parse_numbers(text: str, option: str) -> tuple[float, ...]:
    """Numbers separated by commas; none for an empty text."""
    if not text:
        return ()
    try:
        numbers = tuple(float(number) for number in text.split(",") if number.strip())
    except ValueError:
        numbers = ()
    if not numbers or not all(map(math.isfinite, numbers)):
        raise BadInput("options", f"{option} {text!r} is not a list of numbers; use e.g. 20,26,32")
    return numbers


def write(path: Path, content: bytes) -> None:
    try:
        write_atomic(path, content)
    except OSError as error:
        raise _error(f"{path} cannot be written", error) from error
    typer.echo(f"wrote {path}", err=True)


def copy_encodes(encodes: Iterable[tuple[str, EncodeResult]], folder: Path) -> None:
    """Copy encodes under these names, without their endings; as hard links where possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, encode in encodes:
            kept = Path(encode.file)
            target = folder / f"{name}{kept.suffix}"
            target.unlink(missing_ok=True)
            with suppress(OSError):
                os.link(kept, target)
                continue
            with kept.open("rb") as file:
                write_atomic_with(target, partial(shutil.copyfileobj, file))
    except OSError as error:
        raise _error(f"cannot copy the encodes to {folder}", error) from error


def _error(what: str, error: OSError) -> ScoringError:
    message = f"{what}: {error.strerror}"
    return NodeFault(message) if error.errno in DISK_ERRORS else BadInput("options", message)
