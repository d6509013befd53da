"""The result cache: keyed by the clips' SHA-256, the model, the options and the engine."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from vmafx.atomic_write import write_atomic
from vmafx.scoring.engine import Engine
from vmafx.scoring.models import VmafModel
from vmafx.scoring.request import ScoreOptions, Source
from vmafx.scoring.result import Report

MAX_CACHE_BYTES = 512 << 20
REVISION = 1  # raised when the same input scores otherwise than before: what is kept of then is not used
NOT_IN_THE_KEY = {"threads", "model"}  # the first changes no score, and the second is there by its content


def default_cache_folder() -> Path | None:
    """None for who has no home, as users of containers may have none."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vmafx" / "results"
    except RuntimeError:
        return None


def cache_key(
    digests: tuple[str, str], sources: tuple[Source, Source], model: VmafModel, options: ScoreOptions, engine: Engine
) -> str:
    """The same for the same work, whatever the clips are called."""
    chosen = {name: value for name, value in msgspec.structs.asdict(options).items() if name not in NOT_IN_THE_KEY}
    parts = {
        "digests": digests,
        "formats": [source.format for source in sources],
        "model": model.identity,
        "options": chosen,
        "engine": [engine.version, *engine.identity()],
        "revision": REVISION,
    }
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


class ResultCache:
    """A folder of reports. Whatever is wrong with it, scoring goes on without."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or default_cache_folder()

    def get(self, key: str) -> Report | None:
        if self._folder is None:
            return None
        path = self._path(self._folder, key)
        try:
            if not path.is_file():
                return None
            report = msgspec.json.decode(path.read_bytes(), type=Report)
            os.utime(path)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None
        whole = {len(report.numbers), *map(len, report.values.values())} == {report.result.frames}
        return report if whole and report.result.key == key else None

    def put(self, report: Report) -> None:
        if self._folder is not None:
            with suppress(OSError):
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                write_atomic(self._path(self._folder, report.result.key), msgspec.json.encode(report))
                self._prune(self._folder)

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / f"{key}.json"

    @staticmethod
    def _prune(folder: Path) -> None:
        """The longest unused go first."""
        files = sorted(((path.stat(), path) for path in folder.glob("*.json")), key=lambda one: one[0].st_mtime)
        size = sum(status.st_size for status, _ in files)
        for status, path in files:
            if size <= MAX_CACHE_BYTES:
                return
            path.unlink(missing_ok=True)
            size -= status.st_size
