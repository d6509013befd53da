"""Answers that are known: clips are looked at after each request has arrived, and for many requests at once."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
import pytest

from tests.support.waiting import eventually
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.serving import answers
from vmafx.serving.answers import MAX_REPEATABLE_BODY, MAX_SEARCHES, REPEATABLE_SECONDS, KnownAnswers
from vmafx.serving.clips import ContentIdentity, Identified, SeenFile, identify
from vmafx.serving.models import ServedModels
from vmafx.serving.request import ScoreRequest
from vmafx.serving.results import ResultStore

SPEC = ScoreRequest(reference="/reference.mkv", distorted="/distorted.mkv")
BEFORE, AFTER = (ContentIdentity("a"), ContentIdentity("b")), (ContentIdentity("a"), ContentIdentity("c"))


class Everything:
    """Models that do not change, and results that are all kept."""

    default_name = "default"

    def is_fixed(self, _model: str) -> bool:
        return True

    def touch(self, _key: str) -> bool:
        return True


def known(tmp_path: Path) -> KnownAnswers:
    everything = Everything()
    models, results = cast("ServedModels", everything), cast("ResultStore", everything)
    found = KnownAnswers(MediaPolicy(roots=(tmp_path,)), models, results)
    found.remember(BEFORE, msgspec.structs.replace(SPEC, model="default"), {}, "key", b"answer")
    return found


async def test_requests_that_wait_share_a_search_that_starts_after_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, searches = threading.Event(), list[str]()
    content = BEFORE

    def identify_slowly(*_: object) -> Identified:
        searches.append(threading.current_thread().name)
        seen = content
        release.wait(20)
        return Identified(seen, ())

    monkeypatch.setattr(answers, "identify", identify_slowly)
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
    def fail(*_: object) -> None:
        raise OSError(5, "the disk fails")

    monkeypatch.setattr(answers, "identify", fail)
    found = known(tmp_path)
    results = await asyncio.gather(*(found.find(SPEC, {}, {}) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(result, OSError) for result in results)


class Disk(Everything):
    """Results that may be deleted."""

    def __init__(self) -> None:
        self.kept = True

    def touch(self, _key: str) -> bool:
        return self.kept


class Repeated:
    """Two clips in a folder, whose answer has been found once."""

    body = b'{"reference": "reference.mkv", "distorted": "distorted.mkv"}'

    def __init__(self, root: Path) -> None:
        self.root, self.disk = root, Disk()
        self.folder = root / "clips"
        self.folder.mkdir(parents=True)
        self.reference, self.distorted = self.folder / "reference.mkv", self.folder / "distorted.mkv"
        for path in (self.reference, self.distorted):
            path.write_bytes(path.name.encode())
        self.spec = ScoreRequest(reference=str(self.reference), distorted=str(self.distorted))
        policy = MediaPolicy(roots=(root,))
        self.time = 0.0
        models, results = cast("ServedModels", self.disk), cast("ResultStore", self.disk)
        self.answers = KnownAnswers(policy, models, results, lambda: self.time)
        clips = identify(self.spec, {}, policy)
        assert clips is not None
        named = msgspec.structs.replace(self.spec, model=self.disk.default_name)
        self.answers.remember(clips.identities, named, {}, "key", b"answer")

    async def find(self) -> bytes | None:
        return await self.answers.find(self.spec, {}, {}, self.body)

    def repeat(self) -> bytes | None:
        return self.answers.repeat(self.body)


@pytest.fixture
def repeated(tmp_path: Path) -> Repeated:
    return Repeated(tmp_path / "root")


async def test_a_request_is_repeated_once_it_was_found(repeated: Repeated) -> None:
    assert repeated.repeat() is None
    assert await repeated.find() == b"answer"
    assert repeated.repeat() == b"answer"
    assert repeated.answers.repeat(repeated.body + b" ") is None


async def test_an_answer_is_for_the_model_that_scored_it(repeated: Repeated) -> None:
    """A job from before a restart was scored with the model that was the default then."""
    repeated.disk.default_name = "another"
    assert await repeated.find() is None
    named = msgspec.structs.replace(repeated.spec, model="default")
    assert await repeated.answers.find(named, {}, {}, b"named") == b"answer"


def overwrite(repeated: Repeated) -> None:
    before = repeated.distorted.stat()
    while repeated.distorted.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of a file system advances in steps
        repeated.distorted.write_bytes(bytes(before.st_size))


def rename_over(repeated: Repeated) -> None:
    other = repeated.folder / "other"
    other.write_bytes(repeated.distorted.read_bytes())
    other.rename(repeated.distorted)


def delete(repeated: Repeated) -> None:
    repeated.distorted.unlink()


def link_to_another(repeated: Repeated) -> None:
    other = repeated.folder / "other"
    other.write_bytes(repeated.distorted.read_bytes())
    repeated.distorted.unlink()
    repeated.distorted.symlink_to(other)


def move_out_of_the_root(repeated: Repeated) -> None:
    """The path leads to the same file, which is now elsewhere."""
    outside = repeated.root.parent / "outside"
    repeated.folder.rename(outside)
    repeated.folder.symlink_to(outside)


@pytest.mark.parametrize("change", [overwrite, rename_over, delete, link_to_another, move_out_of_the_root])
async def test_a_request_is_not_repeated_once_a_clip_has_changed(
    repeated: Repeated, change: Callable[[Repeated], None]
) -> None:
    await repeated.find()
    await asyncio.to_thread(change, repeated)
    assert repeated.repeat() is None
    assert await repeated.find() is None


async def test_requests_that_have_arrived_share_a_look_at_their_clips(
    repeated: Repeated, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, look = list[SeenFile](), SeenFile.is_unchanged

    def is_unchanged(file: SeenFile) -> bool:
        looks.append(file)
        return look(file)

    monkeypatch.setattr(SeenFile, "is_unchanged", is_unchanged)
    await repeated.find()
    assert [repeated.repeat() for _ in range(10)] == [b"answer"] * 10
    assert len(looks) == 2
    overwrite(repeated)
    await asyncio.sleep(0)  # a request that arrives now is handled in the next turn of the loop
    assert repeated.repeat() is None


async def test_a_result_that_is_not_kept_any_more_is_noticed_after_some_seconds(repeated: Repeated) -> None:
    await repeated.find()
    repeated.disk.kept = False
    assert repeated.repeat() == b"answer"
    repeated.time += REPEATABLE_SECONDS + 0.1
    assert repeated.repeat() is None
    assert await repeated.find() is None


async def test_few_and_short_requests_are_remembered(repeated: Repeated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "MAX_REPEATABLE", 2)
    bodies = [b"%d" % number for number in range(3)]
    for body in bodies:
        await repeated.answers.find(repeated.spec, {}, {}, body)
    assert [repeated.answers.repeat(body) for body in bodies] == [None, b"answer", b"answer"]
    long = b" " * (MAX_REPEATABLE_BODY + 1)
    await repeated.answers.find(repeated.spec, {}, {}, long)
    assert repeated.answers.repeat(long) is None
