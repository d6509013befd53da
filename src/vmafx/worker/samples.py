"""The samples of an attempt, for trainings: written to a file for an agent, or pushed to the controller by a Pod.

Samples are optional: a failure is logged, and does not change the result of the attempt.
"""

import asyncio
import signal
from base64 import b64encode
from pathlib import Path

import msgspec

from vmafx.atomic_write import write_atomic
from vmafx.logs import log
from vmafx.scoring.result import Report
from vmafx.text import one_line
from vmafx.training.samples import InvalidSamples, SampleBatch, encode_batch, make_batch

PUSH_TIMEOUT = 5.0  # seconds in total: a Pod hardly lives longer because of its samples
RETRY_DELAY = 0.5  # seconds


class _PushReply(msgspec.Struct):
    """PushSamplesResponse as JSON, or an error."""

    result: str = ""
    message: str = ""


def samples_of(report: Report) -> SampleBatch | None:
    """None if the model that scored the clip has other features than trainings use, or a value is implausible.

    A training must not learn from its own model, so the scores are those of the base of a learned model.
    """
    teacher = "vmaf_base" if report.result.base else "vmaf"
    batch = make_batch(report.result.base or report.result.model, report.numbers, report.values, teacher)
    if batch is None:
        log.info("no samples: the model has other features", model=report.result.model)
        return None
    try:
        batch.check()
    except InvalidSamples as error:
        log.warn("no samples", error=str(error))
        return None
    if batch.count < len(report.numbers):
        log.info("samples taken of a part of the frames", frames=len(report.numbers), samples=batch.count)
    return batch


def write_samples(path: Path, batch: SampleBatch) -> None:
    try:
        write_atomic(path, encode_batch(batch))
    except OSError as error:
        log.warn("could not write samples", file=str(path), error=error.strerror)


def push_samples(url: str, token: str, batch: SampleBatch) -> None:
    """Push the samples within PUSH_TIMEOUT; SIGTERM and SIGINT end it at once."""
    try:
        asyncio.run(_push(url, token, batch))
    except asyncio.CancelledError:
        log.warn("samples not delivered: stopped by a signal")


async def _push(url: str, token: str, batch: SampleBatch) -> None:
    task = asyncio.current_task()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lambda: task and task.cancel())
    body = msgspec.json.encode({"samplesToken": token, "samples": b64encode(encode_batch(batch)).decode()})
    error = ""
    try:
        async with asyncio.timeout(PUSH_TIMEOUT):
            if error := await _try_push(url, body):
                await asyncio.sleep(RETRY_DELAY)
                error = await _try_push(url, body)
    except TimeoutError:
        error = error or f"no reply within {PUSH_TIMEOUT:.0f} s"
    if error:
        log.warn("samples not delivered", error=error)


async def _try_push(url: str, body: bytes) -> str:
    """Push once; what failed, if another try may succeed."""
    from vmafx.kube.fetch import fetch  # noqa: PLC0415 - only needed with a training

    try:
        response = await fetch(url, method="POST", headers={"Content-Type": "application/json"}, body=body)
    except (OSError, ValueError) as error:
        return str(error) or type(error).__name__
    try:
        reply = msgspec.json.decode(response.body, type=_PushReply)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        reply = _PushReply()
    if response.status >= 500 or reply.result == "RETRY":
        return f"HTTP status {response.status}: {one_line(reply.message)}"
    if response.status == 200 and reply.result in {"STORED", "DUPLICATE"}:
        log.info("samples delivered", result=reply.result)
    else:
        log.warn("samples refused", status=response.status, result=reply.result, error=one_line(reply.message))
    return ""
