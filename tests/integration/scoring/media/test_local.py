"""Local clips, on a real file system."""

import asyncio
import os
import socket
from pathlib import Path

import pytest

from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.media.access import open_media
from vmafx.scoring.media.policy import MediaPolicy

ANY = MediaPolicy()


@pytest.fixture
def clip(tmp_path: Path) -> Path:
    path = tmp_path / "clip.mp4"
    path.write_bytes(b"a clip")
    return path


async def refusal(uri: str, policy: MediaPolicy = ANY) -> str:
    before = open_descriptors()
    with pytest.raises(BadInput) as refused:
        async with open_media(uri, "reference", policy):
            pass
    assert open_descriptors() == before
    assert refused.value.part == "reference"
    return refused.value.why


def open_descriptors() -> dict[str, str]:
    """By number, without what merely lists them, and without connections: others' come and go."""
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        if link.is_symlink() and not os.readlink(link).startswith(("/proc/", "socket:")):  # noqa: PTH115
            found[link.name] = os.readlink(link)  # noqa: PTH115
    return found


@pytest.mark.parametrize(
    "name", ["a.mp4", "-y.mp4", "a:b.mp4", "100%25.mp4", "a?b#c.mp4", "a b.mp4", "é.mp4", "\udcff.mp4"]
)
async def test_a_file_of_any_name_is_opened_to_be_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"a clip")
    for uri in (str(tmp_path / name), (tmp_path / name).as_uri()):
        async with open_media(uri, "reference", ANY) as opened:
            assert os.read(opened.fd, 100) == b"a clip"
            assert (opened.size, opened.digest) == (6, None)
            assert not os.get_inheritable(opened.fd)
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.write(opened.fd, b"x")


async def test_a_relative_path_counts_from_the_working_folder(clip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(clip.parent)
    async with open_media("clip.mp4", "reference", ANY) as opened:
        assert opened.shown == "clip.mp4"


async def test_the_descriptor_is_closed_after(clip: Path) -> None:
    before = open_descriptors()
    async with open_media(str(clip), "reference", ANY) as opened:
        assert open_descriptors() == before | {str(opened.fd): str(clip)}
    assert open_descriptors() == before


async def test_what_was_opened_stays_the_clip_when_its_name_goes_to_another(clip: Path) -> None:
    async with open_media(str(clip), "reference", ANY) as opened:
        clip.unlink()
        clip.write_bytes(b"another")
        again = opened.again()
        assert os.read(again, 100) == b"a clip"
        assert os.lseek(opened.fd, 0, os.SEEK_CUR) == 0
        os.close(again)


async def test_what_is_not_there(tmp_path: Path, clip: Path) -> None:
    assert "there is no file" in await refusal(str(tmp_path / "none.mp4"))
    assert "there is no file" in await refusal(str(clip / "below"))
    assert "there is no file" in await refusal("x" * 300)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "there is no file" in await refusal(str(tmp_path / "loop"))


async def test_what_is_no_file(tmp_path: Path) -> None:
    assert "is a folder" in await refusal(str(tmp_path))
    os.mkfifo(tmp_path / "pipe")
    assert "is a pipe" in await asyncio.wait_for(refusal(str(tmp_path / "pipe")), 10)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        assert "is a socket" in await refusal(str(tmp_path / "socket"))
    assert "is a device" in await refusal("/dev/zero")
    (tmp_path / "link").symlink_to("/dev/tty")
    assert "is a device" in await refusal(str(tmp_path / "link"))


async def test_what_is_empty_or_too_large(clip: Path) -> None:
    assert "larger than the 5 bytes allowed" in await refusal(str(clip), MediaPolicy(max_bytes=5))
    clip.write_bytes(b"")
    assert "is empty" in await refusal(str(clip))


async def test_what_may_not_be_read(clip: Path) -> None:
    clip.chmod(0o000)
    user = os.geteuid()
    if user == 0:  # root may read anything; somebody else may not
        os.seteuid(65534)
    try:
        assert "no permission" in await refusal(str(clip))
    finally:
        os.seteuid(user)


async def test_a_scheme_that_is_not_allowed(clip: Path) -> None:
    policy = MediaPolicy(schemes=frozenset({"https"}))
    assert "file:// is not allowed" in await refusal(str(clip), policy)
    assert "file:// is not allowed" in await refusal(clip.as_uri(), policy)
    assert "http:// is not allowed" in await refusal("http://host/a", policy)


async def test_only_what_lies_below_a_root_is_opened(tmp_path: Path) -> None:
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


async def test_outside_the_roots_nobody_learns_what_there_is(tmp_path: Path) -> None:
    policy = MediaPolicy(roots=(tmp_path,))
    reasons = [await refusal(path, policy) for path in ("/etc/passwd", "/etc/none", "/etc", "/etc/passwd/x")]
    assert all("outside the folders" in reason for reason in reasons)
    assert "there is no file" in await refusal(str(tmp_path / "none"), policy)


async def test_a_machine_out_of_descriptors_is_at_fault_and_not_the_clip(
    clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("vmafx.scoring.media.local.os.open", full)
    with pytest.raises(NodeFault, match="Too many open files"):
        async with open_media(str(clip), "reference", ANY):
            pass


async def test_cancelled_while_it_opens_nothing_stays_open(clip: Path) -> None:
    before = open_descriptors()

    async def use() -> None:
        async with open_media(str(clip), "reference", ANY):
            await asyncio.Event().wait()

    for turns in range(6):
        task = asyncio.create_task(use())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert open_descriptors() == before
