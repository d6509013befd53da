"""`vmafx worker`: the process."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping

import msgspec

from vmafx import logs
from vmafx.jobs.work import EXIT_CODES, WORK, Answer, Work, fitted
from vmafx.logs import log
from vmafx.scoring import engine
from vmafx.scoring.errors import NodeFault, ScoringError
from vmafx.scoring.media.policy import Policy
from vmafx.scoring.media.uri import shown
from vmafx.scoring.request import Options, OptionSettings
from vmafx.scoring.score import Scorer
from vmafx.settings import from_environ
from vmafx.worker import progress
from vmafx.worker.options import WorkerSettings
from vmafx.worker.score import answer, failed

STOPPED = 128 + signal.SIGTERM


def main(environ: Mapping[str, str] = os.environ) -> int:
    """Score what VMAFX_WORK says; the exit code tells bad input (2) from a failed engine (3) and a bad node (4)."""
    logs.configure("info", "json")
    settings = from_environ(WorkerSettings, environ)
    try:
        said = asyncio.run(_until_stopped(settings, environ))
    except asyncio.CancelledError:
        log.warn("stopped")
        return STOPPED
    if said.fault is None:
        log.info("scored", score=said.score, frames=said.frames)
    else:
        log.error("not scored", fault=said.fault, why=said.message)
    try:
        settings.answer.write_bytes(fitted(said))
    except OSError as error:
        log.error("the answer cannot be written", error=error.strerror)
        return EXIT_CODES["NodeFault"]
    return EXIT_CODES[said.fault] if said.fault else 0


async def _until_stopped(settings: WorkerSettings, environ: Mapping[str, str]) -> Answer:
    task = asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: task and task.cancel())
    return await _answer(settings, environ)


async def _answer(settings: WorkerSettings, environ: Mapping[str, str]) -> Answer:
    try:
        work = msgspec.json.decode(settings.work, type=Work)
    except msgspec.DecodeError as error:
        return failed("", NodeFault(f"{WORK} cannot be understood ({error}); is this worker older than its operator?"))
    log.info("scoring", reference=shown(work.reference), distorted=shown(work.distorted), model=shown(work.model))
    try:
        policy = Policy.from_environ(environ)
        threads = OptionSettings.from_environ(environ).threads
        scorer = Scorer(await engine.ready(environ), policy)
    except ScoringError as error:
        return failed(work.id, NodeFault(str(error)))
    with progress.told(settings.progress) as listener:
        return await answer(work, Options.of(work, threads), scorer, policy, listener)


if __name__ == "__main__":
    sys.exit(main())
