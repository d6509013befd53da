"""A lock on a folder, so that one process at a time uses it; it ends with the process."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path


class FolderInUse(Exception):
    """Another process uses the folder."""


def lock_folder(folder: Path, setting: str) -> int:
    """Lock the folder; returns the descriptor to close. Raises FolderInUse; `setting` is the flag that names one."""
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        with suppress(OSError):
            os.close(fd)
        raise FolderInUse(f"another server uses the folder {folder}; give each its own with {setting}") from None
    return fd
