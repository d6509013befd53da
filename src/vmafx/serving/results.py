"""ResultStore: results by the digest of what was scored, with their pictures, as JSON and as reports."""

from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from vmafx.http.errors import StatusError
from vmafx.scoring.cache import ResultCache
from vmafx.scoring.result import FramePair, Report, ScoreResult
from vmafx.tasks import in_thread

MAX_ANSWERS = 4096  # encoded results in memory; each has about 8 kB


def links(key: str) -> dict[str, str]:
    """Where a result is found."""
    return {
        "self": f"/v1/results/{key}",
        "page": f"/results/{key}",
        "html": f"/v1/results/{key}/report.html",
        "json": f"/v1/results/{key}/report.json",
        "csv": f"/v1/results/{key}/report.csv",
    }


class ResultStore:
    """A folder of results. The least recently used are deleted above `max_bytes`."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.cache = ResultCache(folder, max_bytes)
        self._answers: OrderedDict[str, bytes] = OrderedDict()

    def remember(self, result: ScoreResult) -> bytes:
        """The result as the JSON that clients get."""
        document: dict[str, Any] = msgspec.to_builtins(result)
        body = msgspec.json.encode({**document, "links": links(result.key)})
        self._answers[result.key] = body
        if len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)
        return body

    def known_answer(self, key: str) -> bytes | None:
        """The JSON of a result, if it is in memory."""
        if key in self._answers:
            self._answers.move_to_end(key)
        return self._answers.get(key)

    async def answer(self, key: str) -> bytes:
        """The JSON of a result. Raises StatusError if it is not kept any more."""
        return self.known_answer(key) or self.remember((await self.report(key)).result)

    async def report(self, key: str) -> Report:
        report = await in_thread(self.cache.get, key)
        if report is None:
            raise StatusError("NOT_FOUND", "there is no such result, or it is not kept any more; score the clips again")
        return report

    async def pictures(self, key: str) -> Sequence[FramePair]:
        return await in_thread(self.cache.get_pictures, key)

    async def put_pictures(self, key: str, pictures: Sequence[FramePair]) -> None:
        await in_thread(self.cache.put_pictures, key, pictures)

    async def rendered(self, key: str, name: str) -> bytes:
        """A report of the result, in the format of the name's extension."""
        report = await self.report(key)
        pictures = await self.pictures(key)
        return await in_thread(_render, name, report, pictures)


def _render(name: str, report: Report, pictures: Sequence[FramePair]) -> bytes:
    from vmafx.reports import render_report  # noqa: PLC0415 - imports matplotlib, which takes time and memory

    return render_report(name, report, pictures)
