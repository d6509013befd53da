"""ResultStore: results by the digest of what was scored, with their pictures, as JSON and as reports."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from vmafx.api.fields import doc
from vmafx.http.errors import StatusError
from vmafx.scoring.cache import ResultCache
from vmafx.scoring.errors import BadInput
from vmafx.scoring.result import FramePair, Pictures, Report, ScoreResult
from vmafx.serving.job import JobRecord
from vmafx.serving.models import ServedModels
from vmafx.tasks import in_thread

ChartFormat = Literal["svg", "png"]
MAX_RESULTS = 4096  # in memory, without their frames


def result_links(key: str) -> dict[str, str]:
    """Where a result is found."""
    return {
        "self": f"/v1/results/{key}",
        "page": f"/results/{key}",
        "html": f"/v1/results/{key}/report.html",
        "json": f"/v1/results/{key}/report.json",
        "csv": f"/v1/results/{key}/report.csv",
        "svg": f"/v1/results/{key}/report.svg",
        "png": f"/v1/results/{key}/report.png",
    }


class ScoreAnswer(ScoreResult, frozen=True, kw_only=True):
    """The score of one distorted clip, how it was computed, and where its reports are."""

    links: Annotated[
        dict[str, str],
        doc("Paths: self, page (to link to), the reports html, json and csv, and the curve as svg and png."),
    ] = {}


class ResultStore:
    """A folder of results. The least recently used are deleted above `max_bytes`.

    A result has the names of the clips in the request that was scored; answers have those of their own request.
    """

    def __init__(self, folder: Path, max_bytes: int, models: ServedModels) -> None:
        self.cache, self._models = ResultCache(folder, max_bytes), models
        self._results: OrderedDict[str, ScoreResult] = OrderedDict()
        self._taking: dict[str, list[asyncio.Event]] = {}  # by result: ends of what takes its pictures

    def remember(self, result: ScoreResult) -> None:
        self._results[result.key] = result
        if len(self._results) > MAX_RESULTS:
            self._results.popitem(last=False)

    def touch(self, key: str) -> bool:
        """Whether the result is still kept; then it has been used now. It accesses the disk."""
        return self.cache.touch(key)

    async def answer(self, key: str, record: JobRecord | None = None) -> bytes:
        """The result as the JSON that clients get: with the names of a job. StatusError if it is not kept any more."""
        if key not in self._results:
            self.remember((await self.report(key)).result)
        return self.encode(self._results[key], record)

    def encode(self, result: ScoreResult, record: JobRecord | None = None, *, cached: bool = False) -> bytes:
        """`cached`: answered without a job; else as the result says."""
        if record is not None:
            result = msgspec.structs.replace(
                result,
                cached=cached or result.cached,
                reference=msgspec.structs.replace(result.reference, uri=record.clip_name("reference")),
                distorted=msgspec.structs.replace(result.distorted, uri=record.clip_name("distorted")),
            )
        shown = msgspec.structs.replace(result, model=self._models.shown_name(result.model))
        return msgspec.json.encode(ScoreAnswer(**msgspec.structs.asdict(shown), links=result_links(result.key)))

    async def report(self, key: str) -> Report:
        report = await in_thread(self.cache.get, key)
        if report is None:
            raise StatusError("NOT_FOUND", "there is no such result, or it is not kept any more; score the clips again")
        model = self._models.shown_name(report.result.model)
        return msgspec.structs.replace(report, result=msgspec.structs.replace(report.result, model=model))

    async def pictures(self, key: str) -> Sequence[FramePair]:
        return await in_thread(self.cache.get_pictures, key)

    async def put_pictures(self, key: str, pictures: Sequence[FramePair]) -> None:
        await in_thread(self.cache.put_pictures, key, pictures)

    @contextmanager
    def taking_pictures(self, key: str) -> Iterator[None]:
        """While this is open, pictures of the result are being taken; afterwards there are some, or it has failed."""
        ended = asyncio.Event()
        self._taking.setdefault(key, []).append(ended)
        try:
            yield
        finally:
            ended.set()
            self._taking[key].remove(ended)
            if not self._taking[key]:
                del self._taking[key]

    async def wait_for_pictures(self, key: str, seconds: float) -> bool:
        """Wait while pictures of the result are being taken, at most so long; False if they still are."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while key in self._taking:
                    await self._taking[key][0].wait()
        return key not in self._taking

    async def rendered(self, key: str, name: str, pictures: Pictures = ()) -> bytes:
        """A report of the result, in the format of the name's extension."""
        return await in_thread(_render, name, await self.report(key), pictures)

    async def chart(self, key: str, feature: str, file_format: ChartFormat) -> bytes:
        """The curve of a feature as SVG or PNG. StatusError if it was not measured."""
        report = await self.report(key)
        if feature not in report.values:
            message = f"feature must be one that was measured: {', '.join(report.values)}"
            raise StatusError("INVALID_ARGUMENT", message)
        return await in_thread(_draw, report, feature, file_format)


def _draw(report: Report, feature: str, file_format: ChartFormat) -> bytes:
    from vmafx.reports import chart_file  # noqa: PLC0415 - imports matplotlib, which takes time and memory

    try:
        return chart_file([report], feature, file_format)
    except BadInput as error:  # all values are infinite
        raise StatusError("INVALID_ARGUMENT", str(error)) from None


def _render(name: str, report: Report, pictures: Pictures) -> bytes:
    from vmafx.reports import render_report  # noqa: PLC0415 - imports matplotlib, which takes time and memory

    return render_report(name, report, pictures)
