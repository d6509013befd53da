"""`vmafx worker`: the process, and the variables that configure it."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from vmafx import logs
from vmafx.jobs.attempt import EXIT_CODES, SPEC_VARIABLE, AttemptResult, AttemptSpec, encode_result
from vmafx.logs import log
from vmafx.scoring import engine
from vmafx.scoring.errors import NodeFault, ScoringError
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import shown
from vmafx.scoring.request import OptionSettings, ScoreOptions
from vmafx.scoring.score import Scorer
from vmafx.settings import Setting, Settings, from_environ
from vmafx.worker import score
from vmafx.worker.score import failed_result, score_attempt


class WorkerSettings(Settings):
    """The variables of `vmafx worker`."""

    # fmt: off
    work: Annotated[str, Setting("The attempt to score, as JSON.", variable=SPEC_VARIABLE)]
    answer: Annotated[Path, Setting(
        "The file that the answer is written to.", default="/dev/termination-log",
        variable="VMAFX_ANSWER_FILE", parse=Path,
    )]
    progress: Annotated[str, Setting(
        "A file that gets a line of JSON about once a second, on how far the score is; the agent reads it.",
        variable="VMAFX_PROGRESS_FILE",
    )]
    # fmt: on


STOP_EXIT_CODE = 128 + signal.SIGTERM


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Score what VMAFX_WORK says; the exit code tells bad input (2) from a failed engine (3) and a bad node (4)."""
    logs.configure("info", "json")
    settings = from_environ(WorkerSettings, environ)
    try:
        said = asyncio.run(_until_stopped(settings, environ))
    except asyncio.CancelledError:
        log.warn("stopped")
        return STOP_EXIT_CODE
    if said.fault is None:
        log.info("scored", score=said.score, frames=said.frames)
    else:
        log.error("not scored", fault=said.fault, why=said.message)
    try:
        settings.answer.write_bytes(encode_result(said))
    except OSError as error:
        log.error("the answer cannot be written", error=error.strerror)
        return EXIT_CODES["NodeFault"]
    return EXIT_CODES[said.fault] if said.fault else 0


async def _until_stopped(settings: WorkerSettings, environ: Mapping[str, str]) -> AttemptResult:
    task = asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: task and task.cancel())
    return await _answer(settings, environ)


async def _answer(settings: WorkerSettings, environ: Mapping[str, str]) -> AttemptResult:
    try:
        work = msgspec.json.decode(settings.work, type=AttemptSpec)
    except msgspec.DecodeError as error:
        return failed_result(
            "", NodeFault(f"{SPEC_VARIABLE} cannot be understood ({error}); is this worker older than its operator?")
        )
    log.info("scoring", reference=shown(work.reference), distorted=shown(work.distorted), model=shown(work.model))
    try:
        policy = MediaPolicy.from_environ(environ)
        threads = OptionSettings.from_environ(environ).threads
        scorer = Scorer(await engine.find_engine(environ), policy)
    except ScoringError as error:
        return failed_result(work.id, NodeFault(str(error)))
    with score.progress_listener(settings.progress) as listener:
        return await score_attempt(work, ScoreOptions.of(work, threads), scorer, policy, listener)


if __name__ == "__main__":
    sys.exit(main())
