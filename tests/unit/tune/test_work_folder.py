"""The folder of finished encodes: what is found again, what is deleted, what is left alone."""

import asyncio
import os
import subprocess
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest

from vmafx.scoring.decoder.messages import Conversion
from vmafx.scoring.errors import BadInput, EngineFailure, NodeFault
from vmafx.tune.encoders import Variant
from vmafx.tune.encoding import EncodeFacts, EncodeOptions
from vmafx.tune.frames import SourceFrames
from vmafx.tune.work_folder import WorkFolder, default_work_folder, encode_key

KEY, OTHER, THIRD = "a" * 64, "b" * 64, "c" * 64
CONTENT = b"encoded"
FACTS = EncodeFacts(frames=12, bytes=len(CONTENT), seconds=0.5, rate=25.0)


@pytest.fixture
def folder(tmp_path: Path) -> WorkFolder:
    opened = WorkFolder(tmp_path / "work")
    opened.open()
    return opened


async def write(path: Path) -> EncodeFacts:
    path.write_bytes(CONTENT)
    return FACTS


async def never(path: Path) -> EncodeFacts:
    raise AssertionError(f"{path} is made again")


def names(folder: WorkFolder) -> set[str]:
    return {path.name for path in folder.folder.iterdir()}


async def test_an_encode_is_made_once(folder: WorkFolder) -> None:
    made = await folder.get_or_make(KEY, "mp4", write)
    assert (made.path.read_bytes(), made.facts, made.resumed) == (CONTENT, FACTS, False)
    again = await WorkFolder(folder.folder).get_or_make(KEY, "mp4", never)
    assert (again.path, again.facts, again.resumed) == (made.path, FACTS, True)
    assert names(folder) == {f"{KEY}.mp4", f"{KEY}.json"}


async def test_an_encode_that_fails_leaves_nothing(folder: WorkFolder) -> None:
    async def fail(path: Path) -> EncodeFacts:
        path.write_bytes(b"half")
        raise EngineFailure("crashed")

    with pytest.raises(EngineFailure):
        await folder.get_or_make(KEY, "mp4", fail)
    assert names(folder) == set()


async def test_an_encode_that_is_cancelled_leaves_nothing(folder: WorkFolder) -> None:
    begun = asyncio.Event()

    async def hang(path: Path) -> EncodeFacts:
        path.write_bytes(b"half")
        begun.set()
        await asyncio.Event().wait()
        return FACTS

    task = asyncio.create_task(folder.get_or_make(KEY, "mp4", hang))
    await begun.wait()
    assert len(names(folder)) == 1
    task.cancel()
    await asyncio.wait([task])
    assert names(folder) == set()


async def test_an_encode_that_another_process_has_finished_first_is_not_replaced(folder: WorkFolder) -> None:
    """With another number of threads, encoders write other bytes."""

    async def make(path: Path) -> EncodeFacts:
        await WorkFolder(folder.folder).get_or_make(KEY, "mp4", write)
        path.write_bytes(b"longer than that")
        return EncodeFacts(frames=12, bytes=16, seconds=0.5, rate=25.0)

    kept = await folder.get_or_make(KEY, "mp4", make)
    assert (kept.facts, kept.path.read_bytes()) == (FACTS, CONTENT)
    assert len(names(folder)) == 2


@pytest.mark.parametrize("record", [b"", b"{}", b"[]", b"{\"frames\": 0, \"bytes\": 7, \"seconds\": 1, \"rate\": 25}",
    b"\xff", b"{\"frames\": 12, \"bytes\": 6, \"seconds\": 1, \"rate\": 25}", b"[" * 100_000, None])  # fmt: skip
async def test_a_damaged_record_makes_the_encode_again(folder: WorkFolder, record: bytes | None) -> None:
    made = await folder.get_or_make(KEY, "mp4", write)
    path = made.path.with_suffix(".json")
    path.unlink()
    if record is not None:
        path.write_bytes(record)
    assert not (await folder.get_or_make(KEY, "mp4", write)).resumed
    assert (await folder.get_or_make(KEY, "mp4", never)).resumed


async def test_an_encode_that_is_missing_or_has_another_size_is_made_again(folder: WorkFolder) -> None:
    made = await folder.get_or_make(KEY, "mp4", write)
    made.path.write_bytes(CONTENT[:-1])
    assert not (await folder.get_or_make(KEY, "mp4", write)).resumed
    made.path.unlink()
    assert not (await folder.get_or_make(KEY, "mp4", write)).resumed


def keep(folder: WorkFolder, key: str, size: int, used: float) -> None:
    path = folder.folder / f"{key}.mp4"
    path.write_bytes(bytes(size))
    path.with_suffix(".json").write_bytes(msgspec.json.encode(FACTS))
    os.utime(path, (used, used))


def test_the_least_recently_used_encodes_above_the_limit_are_deleted(folder: WorkFolder) -> None:
    for used, key in enumerate((OTHER, KEY, THIRD)):
        keep(folder, key, 100, used)
    WorkFolder(folder.folder, max_bytes=200).open()
    assert names(folder) == {f"{key}.{ending}" for key in (KEY, THIRD) for ending in ("mp4", "json")}
    WorkFolder(folder.folder, max_bytes=200).open()
    assert len(names(folder)) == 4
    WorkFolder(folder.folder, max_bytes=0).open()
    assert names(folder) == set()


async def test_nothing_is_deleted_while_another_process_uses_the_folder(folder: WorkFolder) -> None:
    other = WorkFolder(folder.folder, max_bytes=0)
    async with folder.in_use(), other.in_use():
        keep(folder, KEY, 100, used=0)
        partial = folder.folder / f".{KEY}-99999999-0123abcd.mp4.part"
        partial.write_bytes(b"half")  # in a container, the numbers of processes are others
        other.open()
        assert len(names(folder)) == 3
    other.open()
    assert names(folder) == set()


def test_paths_of_encodes_do_not_depend_on_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative one with a colon would also be a protocol for FFmpeg."""
    monkeypatch.chdir(tmp_path)
    assert WorkFolder(Path("12:30")).folder == tmp_path / "12:30"


async def test_an_encode_that_is_found_counts_as_used(folder: WorkFolder) -> None:
    await folder.get_or_make(KEY, "mp4", write)
    os.utime(folder.folder / f"{KEY}.mp4", (0, 0))
    keep(folder, OTHER, len(CONTENT), 1)
    await folder.get_or_make(KEY, "mp4", never)
    WorkFolder(folder.folder, max_bytes=len(CONTENT)).open()
    assert names(folder) == {f"{KEY}.mp4", f"{KEY}.json"}


def test_files_of_others_are_left_alone(folder: WorkFolder) -> None:
    """As where --work is a folder of clips."""
    kept = {"film.mkv", f"{KEY}", f"{KEY}.mp4.bak", f"{'g' * 64}.mp4", ".hidden.part", "notes.json", ".a-1-b.mp4.part"}
    for name in kept:
        (folder.folder / name).write_bytes(bytes(1000))
    (folder.folder / "folder.mp4").mkdir()
    WorkFolder(folder.folder, max_bytes=1).open()
    assert names(folder) == {*kept, "folder.mp4"}


def test_unfinished_encodes_of_processes_that_have_ended_are_deleted(folder: WorkFolder) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    partials = [
        f".{KEY}-{pid}-0123abcd.{ending}.part" for pid in (ended.pid, os.getpid()) for ending in ("mp4", "webm")
    ]
    for name in partials:
        (folder.folder / name).write_bytes(b"half")
    WorkFolder(folder.folder).open()
    assert names(folder) == set(partials[2:])


def test_a_folder_that_cannot_be_used_is_a_fault_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NodeFault, match=r"the folder .*/file for encodes cannot be used: File exists"):
        WorkFolder(tmp_path / "file").open()
    with pytest.raises(NodeFault, match="Not a directory"):
        WorkFolder(tmp_path / "file" / "work").open()


def test_a_folder_whose_name_is_not_utf8_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"the name of the folder .*/w\\udcff is not UTF-8"):
        WorkFolder(tmp_path / "w\udcff").open()


def test_the_default_folder_is_that_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert default_work_folder() == tmp_path / ".cache/vmafx/tune"
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert default_work_folder() == Path("/cache/vmafx/tune")


def key(**changes: object) -> str:
    conversion = Conversion(width=256, height=144, pixel_format="yuv420p", full_range=False, from_full_range=False)
    frames = SourceFrames(conversion, Fraction(25), Fraction(1), {"color_range": "1"}, 12)
    options = EncodeOptions.of(Variant.parse("libx264:fast"), 23.0, 0, 2)
    given: dict[str, object] = {"source_digest": "ab", "frames": frames, "options": options, "tool": "ffmpeg 7"}
    return encode_key(**given | changes)  # type: ignore[arg-type]


def test_a_key_is_of_all_that_an_encode_is_made_from() -> None:
    frames = SourceFrames(
        Conversion(width=128, height=72, pixel_format="yuv420p", full_range=False, from_full_range=False),
        Fraction(25), Fraction(1), {"color_range": "1"}, 12,
    )  # fmt: skip
    same = msgspec.structs.replace(frames, conversion=msgspec.structs.replace(frames.conversion, width=256, height=144))
    changes: list[dict[str, object]] = [
        {"source_digest": "cd"},
        {"frames": frames},
        {"frames": msgspec.structs.replace(same, rate=Fraction(24))},
        {"frames": msgspec.structs.replace(same, pixel_aspect=Fraction(4, 3))},
        {"frames": msgspec.structs.replace(same, colours={"color_range": "2"})},
        {"options": EncodeOptions.of(Variant.parse("libx264:fast"), 24.0, 0, 2)},
        {"options": EncodeOptions.of(Variant.parse("libx264:slow"), 23.0, 0, 2)},
        {"options": EncodeOptions.of(Variant.parse("libx264:fast"), 23.0, 50, 2)},
        {"options": EncodeOptions.of(Variant.parse("libx265:fast"), 23.0, 0, 2)},
        {"tool": "ffmpeg 8"},
        {"part": "0-50"},
    ]
    keys = [key(**one) for one in changes]
    assert len({key(), *keys}) == len(changes) + 1
    assert key() == key(frames=same)
