"""Scores that people gave to clips: read from a CSV file, checked, and set on the jobs of these clips."""

import asyncio
import csv
from collections.abc import Callable, Iterable

import msgspec

from vmafx.api.job import LABELLED
from vmafx.fleet.errors import BadScore, NoSuchJob, explain_errors
from vmafx.fleet.reader import FleetReader
from vmafx.kube import JOBS, ObjectKey
from vmafx.kube.errors import NotFound

COLUMNS = ("job", "score")
MAX_CONCURRENT = 16  # requests


class JobScore(msgspec.Struct, frozen=True):
    """A score that people gave to the clip of a job; `origin` names the line of a file, for errors."""

    job: str
    score: float
    origin: str = ""

    def error(self, text: str) -> BadScore:
        return BadScore(f"{self.origin}: {text}" if self.origin else text)


def parse_score(text: str, origin: str = "") -> float:
    """A score from 0 to 100. Raises BadScore."""
    try:
        score = float(text)
    except ValueError:
        score = -1.0
    if not 0 <= score <= 100:  # also false for NaN
        raise BadScore(f"{origin + ': ' if origin else ''}{text!r} is not a score from 0 to 100")
    return score


def read_scores(lines: Iterable[str], name: str) -> list[JobScore]:
    """The scores of a CSV file with the columns job and score. Raises BadScore, with the number of the line."""
    reader = csv.DictReader(lines, skipinitialspace=True, strict=True)
    scores: dict[str, JobScore] = {}
    try:
        if missing := [column for column in COLUMNS if column not in (reader.fieldnames or ())]:
            raise BadScore(f"{name}, line 1: there is no column {missing[0]!r}; the file needs the line job,score")
        for row in reader:
            origin = f"{name}, line {reader.line_num}"
            job, text = ((row[column] or "").strip() for column in COLUMNS)
            if not job:
                raise BadScore(f"{origin}: there is no job")
            if job in scores:
                raise BadScore(f"{origin}: job {job} has a score already, in line {scores[job].origin.split()[-1]}")
            scores[job] = JobScore(job, parse_score(text, origin), origin)
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadScore(f"{name}, line {reader.reader.line_num}: not CSV: {error}") from error
    if not scores:
        raise BadScore(f"{name} has no scores")
    return list(scores.values())


async def check_jobs(reader: FleetReader, scores: Iterable[JobScore]) -> None:
    """Raise BadScore for the first job that does not exist, in the order of the file."""
    slots = asyncio.Semaphore(MAX_CONCURRENT)

    async def missing(one: JobScore) -> BadScore | None:
        async with slots:
            try:
                await reader.named_jobs([one.job])
            except NoSuchJob as error:
                return one.error(str(error))
        return None

    for error in await asyncio.gather(*map(missing, scores)):
        if error is not None:
            raise error


async def set_scores(reader: FleetReader, scores: Iterable[JobScore], done: Callable[[JobScore], None]) -> None:
    """Set the scores on their jobs, several at a time; call `done` for each that is set."""
    slots = asyncio.Semaphore(MAX_CONCURRENT)

    async def set_score(one: JobScore) -> None:
        patch = {"metadata": {"labels": LABELLED}, "spec": {"humanScore": one.score}}
        async with slots:
            try:
                with explain_errors():
                    await reader.client.merge_patch(
                        JOBS.decoded_as(msgspec.Raw), ObjectKey(reader.namespace, one.job), patch
                    )
            except NotFound as error:
                raise one.error(f"job {one.job} was deleted meanwhile") from error
        done(one)

    await asyncio.gather(*map(set_score, scores))
