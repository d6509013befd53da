"""Local clips, on a real file system."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.media.access import open_media
from vmafx.scoring.media.policy import MediaPolicy

DEFAULT = MediaPolicy()


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "clip.mp4"
    path.write_bytes(b"a clip")
    return path


async def refusal(uri: str, policy: MediaPolicy = DEFAULT) -> str:
    before = open_descriptors()
    with pytest.raises(BadInput) as refused:
        async with open_media(uri, "reference", policy):
            pass
    assert open_descriptors() == before
    assert refused.value.part == "reference"
    return refused.value.why


def open_descriptors() -> dict[str, str]:
    """Open files by descriptor, without sockets, which other tests open and close, and without /proc itself."""
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        if link.is_symlink() and not os.readlink(link).startswith(("/proc/", "socket:")):  # noqa: PTH115
            found[link.name] = os.readlink(link)  # noqa: PTH115
    return found


@pytest.mark.parametrize(
    "name", ["a.mp4", "-y.mp4", "a:b.mp4", "100%25.mp4", "a?b#c.mp4", "a b.mp4", "é.mp4", "\udcff.mp4"]
)
async def test_a_file_of_any_name_is_opened_read_only(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"a clip")
    for uri in (str(tmp_path / name), (tmp_path / name).as_uri()):
        async with open_media(uri, "reference", DEFAULT) as opened:
            assert os.read(opened.fd, 100) == b"a clip"
            assert (opened.size, opened.digest) == (6, None)
            assert not os.get_inheritable(opened.fd)
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.write(opened.fd, b"x")


async def test_a_relative_path_starts_at_the_working_directory(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(clip.parent)
    async with open_media("clip.mp4", "reference", DEFAULT) as opened:
        assert opened.display_name == "clip.mp4"


async def test_the_descriptor_is_closed_afterwards(clip: Path) -> None:
    before = open_descriptors()
    async with open_media(str(clip), "reference", DEFAULT) as opened:
        assert open_descriptors() == before | {str(opened.fd): str(clip)}
    assert open_descriptors() == before


async def test_an_opened_clip_stays_the_same_file_when_its_name_is_reused(clip: Path) -> None:
    async with open_media(str(clip), "reference", DEFAULT) as opened:
        clip.unlink()
        clip.write_bytes(b"another")
        reopened = opened.reopen()
        assert os.read(reopened, 100) == b"a clip"
        assert os.lseek(opened.fd, 0, os.SEEK_CUR) == 0
        os.close(reopened)


async def test_missing_files_are_refused(tmp_path: Path, clip: Path) -> None:
    assert "there is no file" in await refusal(str(tmp_path / "none.mp4"))
    assert "there is no file" in await refusal(str(clip / "below"))
    assert "there is no file" in await refusal("x" * 300)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "there is no file" in await refusal(str(tmp_path / "loop"))


async def test_folders_pipes_sockets_and_devices_are_refused(tmp_path: Path) -> None:
    assert "is a folder" in await refusal(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    assert "is a pipe" in await asyncio.wait_for(refusal(str(tmp_path / "pipe")), 10)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        assert "is a socket" in await refusal(str(tmp_path / "socket"))
    assert "is a device" in await refusal("/dev/zero")
    (tmp_path / "link").symlink_to("/dev/tty")
    assert "is a device" in await refusal(str(tmp_path / "link"))


async def test_empty_and_too_large_files_are_refused(clip: Path) -> None:
    assert "larger than the 5 bytes allowed" in await refusal(str(clip), MediaPolicy(max_bytes=5))
    clip.write_bytes(b"")
    assert "is empty" in await refusal(str(clip))


async def test_an_unreadable_file_is_refused(clip: Path) -> None:
    clip.chmod(0o000)
    user = os.geteuid()
    if user == 0:  # root can read any file
        os.seteuid(65534)
    try:
        assert "permission denied" in await refusal(str(clip))
    finally:
        os.seteuid(user)


async def test_forbidden_schemes_are_refused(clip: Path) -> None:
    policy = MediaPolicy(schemes=frozenset({"https"}))
    assert "file:// is not allowed" in await refusal(str(clip), policy)
    assert "file:// is not allowed" in await refusal(clip.as_uri(), policy)
    assert "http:// is not allowed" in await refusal("http://host/a", policy)


async def test_only_files_in_the_roots_are_opened_after_resolving_links(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "inside-not"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "clip.mp4").write_bytes(b"a clip")
    (inside / "out").symlink_to(outside / "clip.mp4")
    (inside / "folder").symlink_to(outside)
    (outside / "in").symlink_to(inside / "clip.mp4")
    (tmp_path / "root").symlink_to(inside)
    policy = MediaPolicy(roots=(tmp_path / "other", tmp_path / "root"))
    for allowed in (inside / "clip.mp4", tmp_path / "root" / "clip.mp4", outside / "in"):
        async with open_media(str(allowed), "reference", policy) as opened:
            assert opened.size == 6
    for refused in ("inside/out", "inside/folder/clip.mp4", "inside/../inside-not/clip.mp4", "inside-not/clip.mp4"):
        assert "outside the folders" in await refusal(f"{tmp_path}/{refused}", policy)


async def test_the_error_outside_the_roots_does_not_reveal_whether_a_file_exists(tmp_path: Path) -> None:
    policy = MediaPolicy(roots=(tmp_path,))
    reasons = [await refusal(path, policy) for path in ("/etc/passwd", "/etc/none", "/etc", "/etc/passwd/x")]
    assert all("outside the folders" in reason for reason in reasons)
    assert "there is no file" in await refusal(str(tmp_path / "none"), policy)


async def test_running_out_of_descriptors_is_a_node_fault(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("vmafx.scoring.media.local.os.open", full)
    with pytest.raises(NodeFault, match="Too many open files"):
        async with open_media(str(clip), "reference", DEFAULT):
            pass


async def test_cancellation_while_opening_closes_the_file(clip: Path) -> None:
    before = open_descriptors()

    async def use() -> None:
        async with open_media(str(clip), "reference", DEFAULT):
            await asyncio.Event().wait()

    for turns in range(6):
        task = asyncio.create_task(use())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert open_descriptors() == before
