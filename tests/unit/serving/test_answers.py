"""Answers that are known: clips are looked at after each request has arrived, and for many requests at once."""

import asyncio
import threading
from pathlib import Path
from typing import cast

import pytest

from tests.support.waiting import eventually
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.serving import answers
from vmafx.serving.answers import MAX_SEARCHES, KnownAnswers
from vmafx.serving.clips import ContentIdentity
from vmafx.serving.models import ServedModels
from vmafx.serving.request import ScoreRequest
from vmafx.serving.results import ResultStore

SPEC = ScoreRequest(reference="/reference.mkv", distorted="/distorted.mkv")
BEFORE, AFTER = (ContentIdentity("a"), ContentIdentity("b")), (ContentIdentity("a"), ContentIdentity("c"))


class Everything:
    """Models that do not change, and results that are all kept."""

    def is_fixed(self, _model: str) -> bool:
        return True

    def touch(self, _key: str) -> bool:
        return True


def known(tmp_path: Path) -> KnownAnswers:
    everything = Everything()
    models, results = cast("ServedModels", everything), cast("ResultStore", everything)
    found = KnownAnswers(MediaPolicy(roots=(tmp_path,)), models, results)
    found.remember(BEFORE, SPEC, {}, "key", b"answer")
    return found


async def test_requests_that_wait_share_a_search_that_starts_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, searches = threading.Event(), list[str]()
    content = BEFORE

    def identify(*_: object) -> tuple[ContentIdentity, ...]:
        searches.append(threading.current_thread().name)
        seen = content
        release.wait(20)
        return seen

    monkeypatch.setattr(answers, "identify", identify)
    found = known(tmp_path)
    first = [asyncio.create_task(found.find(SPEC, {}, {})) for _ in range(MAX_SEARCHES)]
    await eventually(lambda: len(searches) > 0, "the first search runs")
    content = AFTER  # the clip is replaced while the first search runs
    later = [asyncio.create_task(found.find(SPEC, {}, {})) for _ in range(50)]
    await asyncio.sleep(0)
    release.set()
    assert await first[0] == b"answer"
    assert await asyncio.gather(*later) == [None] * 50  # none of them has the answer for the old content
    assert len(set(searches)) <= MAX_SEARCHES


async def test_a_search_that_fails_ends_all_its_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def identify(*_: object) -> None:
        raise OSError(5, "the disk fails")

    monkeypatch.setattr(answers, "identify", identify)
    found = known(tmp_path)
    results = await asyncio.gather(*(found.find(SPEC, {}, {}) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(result, OSError) for result in results)
