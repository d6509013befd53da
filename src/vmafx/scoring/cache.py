"""Results of before, by what they are the result of: the clips' bytes, the model, the options, the engine."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

import msgspec

from vmafx.scoring.engine import Engine
from vmafx.scoring.models import Model
from vmafx.scoring.request import Options, Source
from vmafx.scoring.result import Report
from vmafx.scoring.whole import put_whole

SIZE_MAX = 512 << 20
NOT_IN_THE_KEY = {"threads", "model"}  # the first changes no score, and the second is there by its content


def default_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vmafx" / "results"


def key_of(
    digests: tuple[str, str], sources: tuple[Source, Source], model: Model, options: Options, engine: Engine
) -> str:
    """The same for the same work, whatever the clips are called."""
    chosen = {name: value for name, value in msgspec.to_builtins(options).items() if name not in NOT_IN_THE_KEY}
    parts = {
        "digests": digests,
        "formats": [source.format for source in sources],
        "model": model.identity,
        "options": chosen,
        "engine": engine.version,
        "schema": 1,
    }
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


class Cache:
    """A folder of reports. Whatever is wrong with it, scoring goes on without."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or default_folder()

    def get(self, key: str) -> Report | None:
        path = self._path(key)
        try:
            report = msgspec.json.decode(path.read_bytes(), type=Report)
            os.utime(path)
        except (OSError, msgspec.DecodeError):
            return None
        return report if report.result.key == key else None

    def put(self, report: Report) -> None:
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            put_whole(self._path(report.result.key), msgspec.json.encode(report))
            self._prune()

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.json"

    def _prune(self) -> None:
        """The longest unused go first."""
        files = sorted(((path.stat(), path) for path in self._folder.glob("*.json")), key=lambda one: one[0].st_mtime)
        size = sum(status.st_size for status, _ in files)
        for status, path in files:
            if size <= SIZE_MAX:
                return
            path.unlink(missing_ok=True)
            size -= status.st_size
