"""The process of `vmafx worker`: its variables, its exit codes and the result file."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Annotated

import msgspec

from vmafx import logs
from vmafx.jobs.attempt import (
    CREDENTIAL_PREFIX,
    CREDENTIAL_VARIABLES,
    EXIT_CODES,
    SAMPLES_FILE_VARIABLE,
    SAMPLES_TOKEN_VARIABLE,
    SAMPLES_URL_VARIABLE,
    SPEC_VARIABLE,
    AttemptSpec,
    encode_result,
    uid_of,
)
from vmafx.logs import log
from vmafx.scoring.engines.find import Engines
from vmafx.scoring.errors import NodeFault, ScoringError
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import display_name
from vmafx.scoring.request import OptionSettings, ScoreOptions
from vmafx.scoring.score import Scorer
from vmafx.settings import Setting, Settings, from_environ
from vmafx.worker.samples import push_samples, write_samples
from vmafx.worker.score import ScoredAttempt, failed_result, progress_listener, score_attempt

STOP_EXIT_CODE = 128 + signal.SIGTERM
ENDPOINTS = {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"}


class WorkerSettings(Settings):
    """Variables of `vmafx worker`."""

    # fmt: off
    work: Annotated[str, Setting("The attempt to score, as JSON.", variable=SPEC_VARIABLE)]
    answer: Annotated[Path, Setting(
        "File for the result of the attempt.", default="/dev/termination-log",
        variable="VMAFX_ANSWER_FILE", parse=Path,
    )]
    progress: Annotated[str, Setting(
        "File for progress, a line of JSON about once a second; read by the agent.",
        variable="VMAFX_PROGRESS_FILE",
    )]
    samples_file: Annotated[str, Setting(
        "File for the samples of the attempt, for trainings; read by the agent.", variable=SAMPLES_FILE_VARIABLE,
    )]
    samples_url: Annotated[str, Setting(
        "URL of the controller to push the samples of the attempt to, for trainings; set by the operator.",
        variable=SAMPLES_URL_VARIABLE,
    )]
    samples_token: Annotated[str, Setting(
        "Token to push the samples with; set by the operator.", variable=SAMPLES_TOKEN_VARIABLE,
    )]
    # fmt: on


def main(environ: MutableMapping[str, str] = os.environ) -> int:
    """Scores the attempt in VMAFX_WORK. Exit codes: 0 scored, 2 BadInput, 3 EngineFailure, 4 NodeFault, 143 stopped."""
    logs.configure("info", "json")
    endpoint_of_job = use_credentials(environ)
    settings = from_environ(WorkerSettings, environ)
    try:
        result, samples = asyncio.run(_run(settings, environ, endpoint_of_job=endpoint_of_job))
    except asyncio.CancelledError:
        log.warn("stopped by a signal")
        return STOP_EXIT_CODE
    if result.fault is None:
        log.info("scored", score=result.score, frames=result.frames)
    else:
        log.error("scoring failed", fault=result.fault, error=result.message)
    try:
        settings.answer.write_bytes(encode_result(result))
    except OSError as error:
        log.error("could not write result", file=str(settings.answer), error=error.strerror)
        return EXIT_CODES["NodeFault"]
    if samples is not None and settings.samples_file:
        write_samples(Path(settings.samples_file), samples)
    elif samples is not None:
        push_samples(settings.samples_url, settings.samples_token, samples)
    return EXIT_CODES[result.fault] if result.fault else 0


def use_credentials(environ: MutableMapping[str, str]) -> bool:
    """Give the stores the credentials of the job, except where the node has credentials of its own.

    Returns whether the job chose the endpoint of S3.

    Without an access key of its own, a job cannot choose the endpoint: the node's key would be used there.
    """
    given = {name: environ.pop(f"{CREDENTIAL_PREFIX}{name}", "") for name in CREDENTIAL_VARIABLES}
    ignored = set[str]()
    if "AWS_ACCESS_KEY_ID" in environ or not given["AWS_ACCESS_KEY_ID"]:
        ignored |= {name for name in given if name.startswith("AWS_")}
    if environ.keys() & ENDPOINTS:  # either of them would override the other
        ignored |= ENDPOINTS
    if "GOOGLE_APPLICATION_CREDENTIALS" in environ:
        ignored.add("GOOGLE_APPLICATION_CREDENTIALS_JSON")
    used = {name: value for name, value in given.items() if value and name not in ignored and name not in environ}
    environ.update(used)
    return not ENDPOINTS.isdisjoint(used)


async def _run(settings: WorkerSettings, environ: Mapping[str, str], *, endpoint_of_job: bool) -> ScoredAttempt:
    """Scores the attempt; SIGTERM and SIGINT cancel it."""
    task = asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: task and task.cancel())
    try:
        attempt = msgspec.json.decode(settings.work, type=AttemptSpec)
    except (msgspec.DecodeError, RecursionError) as error:
        message = f"{SPEC_VARIABLE} is invalid ({error}); the worker may be older than the operator or agent"
        return ScoredAttempt(failed_result("", NodeFault(message)))
    log.info(
        "scoring",
        reference=display_name(attempt.reference),
        distorted=display_name(attempt.distorted),
        model=display_name(attempt.model),
        backend=attempt.backend or "",
    )
    try:
        policy = MediaPolicy.for_jobs(environ, job=uid_of(attempt.id), endpoint_of_job=endpoint_of_job)
        defaults = OptionSettings.from_environ(environ)
        scorer = Scorer(Engines(environ), policy)
    except ScoringError as error:
        return ScoredAttempt(failed_result(attempt.id, NodeFault(str(error))))
    options, with_samples = ScoreOptions.of(attempt, defaults), bool(settings.samples_file or settings.samples_url)
    with progress_listener(settings.progress) as listener:
        return await score_attempt(attempt, options, scorer, policy, listener, with_samples=with_samples)


if __name__ == "__main__":
    sys.exit(main())
