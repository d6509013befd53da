"""Files that are found without the disk."""

import os
from pathlib import Path

import pytest

from vmafx.dentry_cache import keeps_inodes, open_cached


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_file_that_was_used_is_found(tmp_path: Path) -> None:
    file = tmp_path / "clip ü.mkv"
    file.write_bytes(b"content")
    fd = open_cached(os.fsencode(file))
    assert fd is not None
    try:
        assert os.fstat(fd).st_ino == file.stat().st_ino
        assert not os.get_inheritable(fd)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.read(fd, 1)  # it refers to the file, and has not opened it
    finally:
        os.close(fd)


def test_links_are_not_followed(tmp_path: Path) -> None:
    folder, link = tmp_path / "clips", tmp_path / "link"
    folder.mkdir()
    (folder / "clip").write_bytes(b"content")
    (folder / "other").symlink_to(folder / "clip")
    link.symlink_to(folder)
    for path in (folder / "other", link / "clip"):
        path.stat()
        assert open_cached(os.fsencode(path)) is None


def test_a_file_that_does_not_exist_is_not_found(tmp_path: Path) -> None:
    before = _descriptors()
    assert open_cached(os.fsencode(tmp_path / "missing")) is None
    assert open_cached(b"") is None
    assert _descriptors() == before


def test_only_local_file_systems_keep_inodes_in_memory(tmp_path: Path) -> None:
    for path, expected in ((tmp_path, True), (Path("/proc"), False)):
        fd = os.open(path, os.O_RDONLY)
        try:
            assert keeps_inodes(fd) is expected, path
        finally:
            os.close(fd)
