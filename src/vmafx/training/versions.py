"""The versions of a model that a training has made, as files: the latest MAX_CHECKPOINTS are kept.

A file has the number and the digest of its version in its name, so that damage is found. A file `.pushed` beside it
says that the version is in the output registry.
"""

import re
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from vmafx.api.training import MAX_CHECKPOINTS
from vmafx.atomic_write import write_atomic
from vmafx.logs import log
from vmafx.scoring.artifact import ModelArtifact, is_intact, make_artifact
from vmafx.scoring.errors import BadInput
from vmafx.scoring.learned import LearnedModel, encode_model
from vmafx.training.status import CheckpointInfo, Quality

KEEP_DAMAGED = 3  # files, for an analysis
_NAME = re.compile(r"(\d{10})-[0-9a-f]{64}\.")


class ModelMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """Provenance of a version: the config of its artifact."""

    training: str  # NAMESPACE/NAME
    number: int  # from 1, increasing
    base: str  # the model that the training started from
    parent: str | None = None  # digest of the version before
    time: datetime
    samples: int  # used for training until then
    quality: Quality = Quality()


class VersionStore:
    """The versions in one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.damaged = 0  # files that were set aside
        self.publishing = False  # whether versions are pushed: one that is dropped before is lost to the registry
        self._folder = folder
        self._versions: dict[int, CheckpointInfo] = {}
        found = [(path, match) for path in sorted(folder.iterdir()) if (match := _NAME.match(path.name))]
        self._last_number = max((int(match[1]) for _, match in found), default=0)
        for path, _ in found:
            if path.suffix == ".version":
                self._open(path)
            elif path.suffix == ".pushed" and not path.with_suffix(".version").exists():
                path.unlink(missing_ok=True)
        self._remove_damaged()

    @property
    def versions(self) -> tuple[CheckpointInfo, ...]:
        """All versions, the latest last."""
        return tuple(self._versions.values())

    @property
    def latest(self) -> CheckpointInfo | None:
        return next(reversed(self._versions.values()), None)

    @property
    def next_number(self) -> int:
        """A number is never used again, also if its file was damaged or removed."""
        return self._last_number + 1

    def add(self, model: LearnedModel, metadata: ModelMetadata) -> CheckpointInfo:
        """Write a version; it is on the disk when this returns. Raises OSError."""
        config = msgspec.json.encode(metadata)
        artifact = make_artifact(config, encode_model(model), metadata.time.isoformat())
        info = _info(metadata, artifact.digest, pushed=False)
        write_atomic(self._path(info), msgspec.msgpack.encode(artifact), durable=True)
        self._versions[info.number] = info
        self._last_number = max(self._last_number, info.number)
        for old in list(self._versions.values())[:-MAX_CHECKPOINTS]:
            if self.publishing and not old.pushed:
                log.warn("version removed before it could be pushed", number=old.number, digest=old.digest)
            self._remove(old)
        return info

    def read(self, info: CheckpointInfo) -> ModelArtifact | None:
        """The artifact of a version; None if its file was damaged in the meantime. It is not listed any more then."""
        artifact = _read(self._path(info), info.digest)
        if artifact is None:
            self._set_aside(self._path(info))
            self._versions.pop(info.number, None)
        return artifact

    def mark_pushed(self, info: CheckpointInfo) -> None:
        """Remember that the version is in the registry, if it is still here. Raises OSError."""
        if info.number in self._versions:
            write_atomic(self._path(info).with_suffix(".pushed"), b"", durable=True)
            self._versions[info.number] = msgspec.structs.replace(info, pushed=True)

    def unpushed(self) -> list[CheckpointInfo]:
        """The versions to push, the oldest first."""
        return [info for info in self._versions.values() if not info.pushed]

    def _open(self, path: Path) -> None:
        artifact = _read(path, f"sha256:{path.stem[11:]}")
        metadata = None if artifact is None else _read_metadata(artifact)
        if artifact is None or metadata is None:
            self._set_aside(path)
            return
        info = _info(metadata, artifact.digest, pushed=path.with_suffix(".pushed").exists())
        self._versions[info.number] = info

    def _set_aside(self, path: Path) -> None:
        self.damaged += 1
        log.warn("damaged version of the model set aside", file=path)
        with suppress(OSError):
            path.replace(path.with_suffix(".damaged"))
            path.with_suffix(".pushed").unlink(missing_ok=True)
            self._remove_damaged()

    def _remove_damaged(self) -> None:
        """Keep the latest: a number stays in use as long as there is a file of it."""
        for path in sorted(self._folder.glob("*.damaged"))[:-KEEP_DAMAGED]:
            path.unlink(missing_ok=True)

    def _remove(self, info: CheckpointInfo) -> None:
        del self._versions[info.number]
        for suffix in (".version", ".pushed"):
            self._path(info).with_suffix(suffix).unlink(missing_ok=True)

    def _path(self, info: CheckpointInfo) -> Path:
        return self._folder / f"{info.number:010d}-{info.digest.removeprefix('sha256:')}.version"


def _read(path: Path, digest: str) -> ModelArtifact | None:
    try:
        artifact = msgspec.msgpack.decode(path.read_bytes(), type=ModelArtifact)
        return artifact if is_intact(artifact, digest) else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError, BadInput):
        return None


def _read_metadata(artifact: ModelArtifact) -> ModelMetadata | None:
    """None if it is not that of this version of vmafx."""
    try:
        return msgspec.json.decode(artifact.config, type=ModelMetadata)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _info(metadata: ModelMetadata, digest: str, *, pushed: bool) -> CheckpointInfo:
    return CheckpointInfo(metadata.number, digest, metadata.time, metadata.samples, metadata.quality, pushed)
