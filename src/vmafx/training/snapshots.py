"""Snapshots of a training: its state, and the position in the log up to which samples are used.

A trainer that starts loads the latest one. Each is a file of its own, with a checksum; the latest two are kept, so
that a damaged one costs only the work since the one before.
"""

import hashlib
import re
from contextlib import suppress
from pathlib import Path

import msgspec

from vmafx.atomic_write import write_atomic
from vmafx.logs import log

KEPT = 2
_MAGIC = b"vmafx.snapshot/v1\n"
_DIGEST_BYTES = 32
_NAME = re.compile(r"(\d{20})\.snapshot")


class Snapshot(msgspec.Struct, frozen=True):
    """The state of a training at a position of its log."""

    position: int
    state: bytes
    counters: dict[str, int] = {}


class SnapshotStore:
    """The snapshots in one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.damaged = 0  # files that were set aside
        self._folder = folder
        self._positions: dict[Path, int] = {}  # of the intact files, the latest last

    @property
    def oldest_position(self) -> int:
        """The log needs the records behind this position, should the latest snapshot get damaged."""
        return next(iter(self._positions.values()), 0)

    def load(self) -> Snapshot | None:
        """The latest intact snapshot."""
        latest: Snapshot | None = None
        self._positions.clear()
        for path in self._files():
            snapshot = _read(path)
            if snapshot is None:
                self.damaged += 1
                log.warn("damaged snapshot set aside", file=path)
                with suppress(OSError):
                    path.replace(path.with_suffix(".damaged"))
            else:
                latest, self._positions[path] = snapshot, snapshot.position
        return latest

    def save(self, snapshot: Snapshot) -> None:
        """Write a snapshot; it is on the disk when this returns. Raises OSError, and then the latest one stays."""
        files = self._files()
        number = int(files[-1].name[:20]) + 1 if files else 1
        path = self._folder / f"{number:020d}.snapshot"
        content = msgspec.msgpack.encode(snapshot)
        write_atomic(path, _MAGIC + hashlib.sha256(content).digest() + content, durable=True)
        self._positions = dict([*self._positions.items(), (path, snapshot.position)][-KEPT:])
        for old in (*files, *self._folder.glob("*.damaged")):
            if old not in self._positions:
                old.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return sorted(path for path in self._folder.iterdir() if _NAME.fullmatch(path.name))


def _read(path: Path) -> Snapshot | None:
    """The snapshot in a file, if it is intact."""
    try:
        content = path.read_bytes()
        header, payload = content[: len(_MAGIC) + _DIGEST_BYTES], content[len(_MAGIC) + _DIGEST_BYTES :]
        if header != _MAGIC + hashlib.sha256(payload).digest():
            return None
        return msgspec.msgpack.decode(payload, type=Snapshot)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
