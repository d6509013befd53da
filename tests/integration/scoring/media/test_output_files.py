"""Reports of jobs in local files: only in the folders for them, and without replacing what others wrote."""

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.media.access import check_output, deliver_report, open_media, stored_size, upload_file
from vmafx.scoring.media.policy import MediaPolicy

CONTENT, OTHER = b'{"score": 93.2}', b"written by somebody else"
EXISTS = "exists already and is not a report of this job; delete it, use another name, or set VMAFX_OUTPUT_REPLACE=true"


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """The folder for reports."""
    folder = tmp_path / "inside"
    folder.mkdir()
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    return folder


@pytest.fixture
def policy(inside: Path) -> MediaPolicy:
    return MediaPolicy(outputs=(inside,), job="uid")


@pytest.fixture(params=["unnamed files", "named files", "no links"])
def file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A local file system, and two that lack features as network file systems do."""
    open_file, link = os.open, os.link

    def without_unnamed(path: Any, flags: int, *arguments: Any, **options: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no O_TMPFILE")
        return open_file(path, flags, *arguments, **options)

    def without_links(source: Any, target: str, *, dst_dir_fd: int, **options: Any) -> None:
        with suppress(FileNotFoundError):
            os.stat(target, dir_fd=dst_dir_fd, follow_symlinks=False)
            link(source, target, dst_dir_fd=dst_dir_fd, **options)  # the kernel checks first whether the name is free
        raise OSError(errno.EPERM, "no links")

    if request.param != "unnamed files":
        monkeypatch.setattr(os, "open", without_unnamed)
    if request.param == "no links":
        monkeypatch.setattr(os, "link", without_links)
    return str(request.param)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and not path.is_symlink()}


@pytest.mark.usefixtures("file_system")
async def test_a_report_is_a_new_file(inside: Path, policy: MediaPolicy) -> None:
    uri = (inside / "r.json").as_uri()
    assert await deliver_report(uri, CONTENT, policy) == uri
    assert files(inside) == {"r.json": CONTENT}


@pytest.mark.usefixtures("file_system")
async def test_a_report_replaces_no_file_of_others(inside: Path, policy: MediaPolicy) -> None:
    (inside / "clip.mkv").write_bytes(OTHER)
    await deliver_report(str(inside / "r.json"), OTHER, msgspec.structs.replace(policy, job="other"))
    for name in ("clip.mkv", "r.json"):
        with pytest.raises(BadInput, match=EXISTS):
            await deliver_report(str(inside / name), CONTENT, policy)
    assert files(inside) == {"clip.mkv": OTHER, "r.json": OTHER}


@pytest.mark.usefixtures("file_system")
async def test_a_retry_replaces_the_report_of_an_earlier_attempt(inside: Path, policy: MediaPolicy) -> None:
    await deliver_report(str(inside / "r.json"), b'{"score": 93.2, "fps": 7}', policy)
    await deliver_report(str(inside / "r.json"), CONTENT, policy)
    assert files(inside) == {"r.json": CONTENT}


async def test_without_attributes_a_retry_needs_the_same_report(inside: Path, policy: MediaPolicy) -> None:
    """A file system without extended attributes does not record the job."""
    (inside / "r.json").write_bytes(CONTENT)
    await deliver_report(str(inside / "r.json"), CONTENT, policy)
    with pytest.raises(BadInput, match=EXISTS):
        await deliver_report(str(inside / "r.json"), OTHER, policy)


@pytest.mark.usefixtures("file_system")
async def test_a_node_may_allow_reports_to_replace_files(inside: Path, policy: MediaPolicy) -> None:
    (inside / "r.json").write_bytes(OTHER)
    await deliver_report(str(inside / "r.json"), CONTENT, msgspec.structs.replace(policy, replace_outputs=True))
    assert files(inside) == {"r.json": CONTENT}


@pytest.mark.parametrize("replaces", [False, True])
async def test_a_report_does_not_follow_a_link(
    inside: Path, outside: Path, policy: MediaPolicy, replaces: bool
) -> None:
    (outside / "clip.mkv").write_bytes(OTHER)
    (inside / "r.json").symlink_to(outside / "clip.mkv")
    (inside / "dangling.json").symlink_to(outside / "new")
    allowed = msgspec.structs.replace(policy, replace_outputs=replaces)
    for name in ("r.json", "dangling.json"):
        if replaces:
            await deliver_report(str(inside / name), CONTENT, allowed)
            assert (inside / name).read_bytes() == CONTENT
        else:
            with pytest.raises(BadInput, match=EXISTS):
                await deliver_report(str(inside / name), CONTENT, allowed)
    assert files(outside) == {"clip.mkv": OTHER}


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
@pytest.mark.parametrize("replaces", [False, True])
async def test_a_folder_or_pipe_is_not_a_report(
    inside: Path, policy: MediaPolicy, make: Callable[[Path], None], replaces: bool
) -> None:
    make(inside / "r.json")
    allowed = msgspec.structs.replace(policy, replace_outputs=replaces)
    if replaces and make is os.mkfifo:
        await deliver_report(str(inside / "r.json"), CONTENT, allowed)
    else:
        with pytest.raises(BadInput, match=rf"{EXISTS}|cannot be written: Is a directory"):
            await deliver_report(str(inside / "r.json"), CONTENT, allowed)
    assert [path.name for path in inside.iterdir()] == ["r.json"]


async def test_reports_stay_in_the_folders_for_them(inside: Path, outside: Path, policy: MediaPolicy) -> None:
    (inside / "way-out").symlink_to(outside)
    ways_out = (
        outside / "r.json",
        inside / "way-out" / "r.json",
        inside / ".." / "outside" / "r.json",
        inside.parent / "none" / "r.json",
        inside,
    )
    for target in ways_out:
        for call in (deliver_report(str(target), CONTENT, policy), check_output(str(target), policy)):
            with pytest.raises(BadInput, match="outside the folders that VMAFX_OUTPUT_DIR allows on the node"):
                await call
    assert (files(outside), files(inside)) == ({}, {})
    for call in (
        deliver_report(str(inside / "none" / "r.json"), CONTENT, policy),
        check_output(str(inside / "none" / "r.json"), policy),
    ):
        with pytest.raises(BadInput, match="cannot be written: No such file"):
            await call
    with pytest.raises(BadInput, match="exists already"):
        await deliver_report(f"{inside}/..", CONTENT, policy)


async def test_without_folders_for_reports_none_is_written(inside: Path) -> None:
    for policy in (MediaPolicy(), MediaPolicy(roots=(inside,))):  # folders of clips are not folders for reports
        for call in (deliver_report(str(inside / "r.json"), CONTENT, policy), check_output(str(inside / "r"), policy)):
            with pytest.raises(BadInput, match="may not write files on this node; set VMAFX_OUTPUT_DIR on the node"):
                await call
    assert files(inside) == {}


async def test_clips_are_not_read_from_the_folders_for_reports(inside: Path, outside: Path) -> None:
    (inside / "clip.mkv").write_bytes(OTHER)
    with pytest.raises(BadInput, match="outside the folders that VMAFX_MEDIA_ROOTS allows"):
        async with open_media(str(inside / "clip.mkv"), "reference", MediaPolicy(roots=(outside,), outputs=(inside,))):
            pass


async def test_a_folder_that_is_swapped_for_a_link_leads_nowhere(
    inside: Path, outside: Path, policy: MediaPolicy
) -> None:
    """Another process replaces a folder by a link, again and again, while reports are written."""
    folder, link, swapped = inside / "folder", inside / "link", inside / "swapped"
    folder.mkdir()
    link.symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            folder.rename(swapped)
            link.rename(folder)
            folder.rename(link)
            swapped.rename(folder)

    swapping = threading.Thread(target=swap)
    swapping.start()
    refused = written = 0
    try:
        while min(refused, written) < 200:
            try:
                await deliver_report(str(folder / f"{refused}-{written}.json"), CONTENT, policy)
                written += 1
            except BadInput:
                refused += 1
    finally:
        stop.set()
        swapping.join()
    assert files(outside) == {}
    assert len(files(folder)) == written


async def test_a_disk_that_fails_is_a_node_fault(
    inside: Path, policy: MediaPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", full)
    with pytest.raises(NodeFault, match="cannot be written: No space left on device"):
        await deliver_report(str(inside / "r.json"), CONTENT, policy)


@pytest.mark.parametrize("text", ["reports", ":", "/a:b"])
def test_the_folders_for_reports_are_absolute(text: str) -> None:
    with pytest.raises(BadInput, match="VMAFX_OUTPUT_DIR: "):
        MediaPolicy.for_jobs({"VMAFX_OUTPUT_DIR": text})


@pytest.mark.usefixtures("file_system")
async def test_a_file_is_copied_in_place_of_an_earlier_one(inside: Path, outside: Path, policy: MediaPolicy) -> None:
    content = os.urandom((2 << 20) + 5)
    (outside / "clip").write_bytes(content)
    (inside / "clip.mp4").write_bytes(b"an upload that was interrupted")
    uri, updates = (inside / "clip.mp4").as_uri(), list[tuple[int, int | None]]()
    with (outside / "clip").open("rb") as file:
        await upload_file(uri, file.fileno(), policy, lambda done, total: updates.append((done, total)))
        with pytest.raises(BadInput, match="outside the folders"):
            await upload_file((outside / "other").as_uri(), file.fileno(), policy)
        with pytest.raises(BadInput, match="files are not uploaded by https://"):
            await upload_file("https://example.com/clip", file.fileno(), policy)
    assert files(inside) == {"clip.mp4": content}
    assert files(outside).keys() == {"clip"}
    assert [done for done, _ in updates] == [1 << 20, 2 << 20, len(content)]
    assert await stored_size(uri, policy) == len(content)
    assert await stored_size((inside / "none").as_uri(), policy) is None
    (inside / "link").symlink_to(outside / "clip")
    with pytest.raises(BadInput, match="is not a regular file"):
        await stored_size((inside / "link").as_uri(), policy)


async def test_a_copy_that_is_cancelled_leaves_nothing(inside: Path, outside: Path, policy: MediaPolicy) -> None:
    with (outside / "large").open("wb") as large:
        large.truncate(8 << 30)
    begun = asyncio.Event()
    with (outside / "large").open("rb") as file:
        uri = (inside / "large").as_uri()
        copying = asyncio.create_task(upload_file(uri, file.fileno(), policy, lambda *_: begun.set()))
        await begun.wait()
        copying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await copying
    assert list(inside.iterdir()) == []
