"""The result cache, keyed by the SHA-256 of the clips, the model, the options and the tools."""

import hashlib
import os
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from vmafx.atomic_write import Writer, write_atomic_with
from vmafx.scoring.models import VmafModel
from vmafx.scoring.request import ScoreOptions, Source
from vmafx.scoring.result import FramePair, Report, ScoreResult

MAX_CACHE_BYTES = 512 << 20
REPORT, PICTURES = ".json", ".pictures"  # endings of file names
REVISION = 1  # increased when a change in vmafx changes scores, which invalidates cached results
# Threads do not affect the score; the model is in the key by its content, the backend by the tools.
NOT_IN_KEY = {"threads", "model", "backend"}


def default_cache_folder() -> Path | None:
    """None if the user has no home folder, as in some containers."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vmafx" / "results"
    except RuntimeError:
        return None


def cache_key(
    digests: tuple[str, str],
    sources: tuple[Source, Source],
    model: VmafModel,
    options: ScoreOptions,
    tools: Sequence[str | int],
) -> str:
    """The same key for the same content, model, options and tools; names of clips do not matter.

    `tools` are the decoder and the engine, with their versions.
    """
    chosen = {name: value for name, value in msgspec.structs.asdict(options).items() if name not in NOT_IN_KEY}
    parts = {
        "digests": digests,
        "formats": [source.format for source in sources],
        "model": model.identity,
        "options": chosen,
        "tools": tools,
        "revision": REVISION,
    }
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


class _Header(msgspec.Struct):
    """The first line of a cached report; the frame numbers and the columns follow, one line each."""

    result: ScoreResult
    columns: list[str]


def _lines(report: Report) -> Iterator[bytes]:
    """The report as lines of JSON, so that only one column at a time is in memory as text."""
    yield msgspec.json.encode(_Header(report.result, list(report.values))) + b"\n"
    yield msgspec.json.encode(report.numbers.tolist()) + b"\n"
    for column in report.values.values():
        yield msgspec.json.encode(column.tolist()) + b"\n"


def _read_report(file: BinaryIO) -> Report:
    header = msgspec.json.decode(file.readline(), type=_Header)
    numbers = array("q", msgspec.json.decode(file.readline(), type=list[int]))
    values = {name: array("d", msgspec.json.decode(file.readline(), type=list[float])) for name in header.columns}
    return Report(header.result, numbers, values)


class ResultCache:
    """A folder of reports, and of pictures for them. Errors are ignored: scoring works without a cache.

    The least recently used files are deleted above `max_bytes`.
    """

    def __init__(self, folder: Path | None = None, max_bytes: int = MAX_CACHE_BYTES) -> None:
        self._folder, self._max_bytes = folder or default_cache_folder(), max_bytes

    def get(self, key: str) -> Report | None:
        if self._folder is None:
            return None
        path = self._path(self._folder, key)
        try:
            if not path.is_file():
                return None
            with path.open("rb") as file:
                report = _read_report(file)
            os.utime(path)
        except (OSError, OverflowError, msgspec.DecodeError, UnicodeDecodeError):
            return None
        complete = {len(report.numbers), *map(len, report.values.values())} == {report.result.frames}
        return report if complete and report.result.key == key else None

    def touch(self, key: str) -> bool:
        """Whether there is a report with this key; then it counts as used now."""
        if self._folder is None:
            return False
        try:
            os.utime(self._path(self._folder, key))
        except OSError:
            return False
        return True

    def put(self, report: Report) -> None:
        self._write(report.result.key, REPORT, lambda file: file.writelines(_lines(report)))

    def get_pictures(self, key: str) -> tuple[FramePair, ...]:
        """The pictures of the report with this key; none if there are none."""
        if self._folder is None:
            return ()
        path = self._path(self._folder, key, PICTURES)
        try:
            pictures = msgspec.msgpack.decode(path.read_bytes(), type=tuple[FramePair, ...])
            os.utime(path)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return ()
        return pictures

    def put_pictures(self, key: str, pictures: Sequence[FramePair]) -> None:
        self._write(key, PICTURES, lambda file: file.write(msgspec.msgpack.encode(pictures)))

    def _write(self, key: str, kind: str, write: Writer) -> None:
        if self._folder is not None:
            with suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                write_atomic_with(self._path(self._folder, key, kind), write)
                self._prune(self._folder)

    @staticmethod
    def _path(folder: Path, key: str, kind: str = REPORT) -> Path:
        return folder / f"{key}{kind}"

    def _prune(self, folder: Path) -> None:
        """Deletes the least recently used files above the size limit."""
        found = [path for kind in (REPORT, PICTURES) for path in folder.glob(f"*{kind}")]
        files = sorted(((path.stat(), path) for path in found), key=lambda entry: entry[0].st_mtime)
        size = sum(status.st_size for status, _ in files)
        for status, path in files:
            if size <= self._max_bytes:
                return
            path.unlink(missing_ok=True)
            size -= status.st_size
