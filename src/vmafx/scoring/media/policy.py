"""What may be opened, and the variables that say so."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Self

from vmafx import settings
from vmafx.scoring.errors import BadInput, InputPart
from vmafx.scoring.media.retry import RetryPolicy
from vmafx.scoring.media.uri import SCHEMES
from vmafx.settings import Setting, Settings, parse_bool

MODEL_DIR = "VMAFX_MODEL_DIR"
_UNITS = {"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}


def _schemes(text: str) -> frozenset[str]:
    named = frozenset(one.strip().lower() for one in text.split(","))
    if unknown := sorted(named - set(SCHEMES)):
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(SCHEMES)}")
    return named


def _roots(text: str) -> tuple[Path, ...]:
    """No root at all would mean anywhere, so what is set must name at least one."""
    roots = tuple(Path(one) for one in text.split(":") if one)
    if text and not roots:
        raise ValueError(f"{text!r} names no folder")
    for root in roots:
        if not root.is_absolute():
            raise ValueError(f"{str(root)!r} is no absolute path")
    return roots


def _folder(text: str) -> Path | None:
    """Absolute, since an agent's workers run in folders of their own."""
    if text and not Path(text).is_absolute():
        raise ValueError(f"{text!r} is no absolute path")
    return Path(text) if text else None


def _size(text: str) -> int:
    found = re.fullmatch(r"([1-9][0-9]{0,17})(|Ki|Mi|Gi|Ti)", text)
    if found is None:
        raise ValueError(f"{text!r} is no size such as 10Gi, 500Mi or a number of bytes")
    return int(found[1]) << _UNITS[found[2]]


class MediaPolicy(Settings):
    """What may be opened here, how large, and how long we wait for it."""

    # fmt: off
    schemes: Annotated[frozenset[str], Setting(
        "How clips may be named, separated by commas; `file` stands for paths.", default=",".join(SCHEMES),
        variable="VMAFX_MEDIA_SCHEMES", parse=_schemes,
    )] = frozenset(SCHEMES)
    roots: Annotated[tuple[Path, ...], Setting(
        "Folders below which local clips must lie, separated by colons; without it, anywhere.",
        variable="VMAFX_MEDIA_ROOTS", parse=_roots,
    )] = ()
    private: Annotated[bool, Setting(
        "Whether a URL may lead to a private, loopback or link-local address.", default="false",
        variable="VMAFX_MEDIA_ALLOW_PRIVATE", parse=parse_bool,
    )] = False
    max_bytes: Annotated[int, Setting(
        "The largest clip, such as `10Gi`, `500Mi` or a number of bytes.", default="64Gi",
        variable="VMAFX_MEDIA_MAX_BYTES", parse=_size,
    )] = 64 << 30
    model_dir: Annotated[Path | None, Setting(
        "The folder of models that are given by name alone: `--model mine` is mine.json in it; below VMAFX_MEDIA_ROOTS,"
        " if that is set.",
        variable=MODEL_DIR, parse=_folder,
    )] = None
    # fmt: on
    reserve: int = 256 << 20  # bytes of the disk that staging leaves free
    connect_seconds: float = 10.0
    stall_seconds: float = 30.0  # without a byte
    block_seconds: float = 300.0  # for a block; who sends slower than that will not get done
    retry: RetryPolicy = RetryPolicy()

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        try:
            return settings.from_environ(cls, environ)
        except settings.InvalidSetting as error:
            raise BadInput("options", str(error)) from error

    def allow(self, scheme: str, part: InputPart) -> None:
        if scheme not in SCHEMES:
            raise BadInput(part, f"{scheme}:// is not known; a clip is a path or begins with {_listed(SCHEMES)}")
        if scheme not in self.schemes:
            allowed = _listed(sorted(self.schemes)) or "nothing"
            raise BadInput(part, f"{scheme}:// is not allowed here, only {allowed}; VMAFX_MEDIA_SCHEMES says so")

    def bound(self, size: int, shown: str, part: InputPart) -> None:
        if size > self.max_bytes:
            # A model's bound is not the variable's.
            cure = "" if part == "model" else "; use a smaller one, or raise VMAFX_MEDIA_MAX_BYTES"
            raise BadInput(part, f"{shown} is larger than the {format_size(self.max_bytes)} allowed{cure}")


def format_size(size: int) -> str:
    """A size as people say it."""
    for unit, shift in reversed(_UNITS.items()):
        if shift and size >= 1 << shift:
            return f"{size / (1 << shift):.4g} {unit}B"
    return f"{size} bytes"


def _listed(schemes: Iterable[str]) -> str:
    return ", ".join(f"{one}://" for one in schemes)
