"""What may be opened, and the variables that say so."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

import msgspec

from vmafx.scoring.errors import BadInput, Part
from vmafx.scoring.media.retry import Retry
from vmafx.scoring.media.schemes import SCHEMES
from vmafx.settings import Setting, truth

_UNITS = {"": 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What may be opened here, how large, and how long we wait for it."""

    schemes: frozenset[str] = frozenset(SCHEMES)
    roots: tuple[Path, ...] = ()  # local clips must lie below one of these; none: anywhere
    private: bool = False  # whether a URL may lead to an address that is not public
    max_bytes: int = 64 << 30
    reserve: int = 256 << 20  # bytes of the disk that staging leaves free
    connect_seconds: float = 10.0
    stall_seconds: float = 30.0  # without a byte
    block_seconds: float = 300.0  # for a block; who sends slower than that will not get done
    retry: Retry = Retry()

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        values = {}
        for one in SETTINGS:
            try:
                values[one.name] = one.parse(environ.get(one.variable) or one.default)
            except ValueError as error:
                raise BadInput("options", f"{one.variable}: {error}") from error
        return cls(**values)

    def allow(self, scheme: str, part: Part) -> None:
        if scheme not in SCHEMES:
            raise BadInput(part, f"{scheme}:// is not known; a clip is a path or begins with {_listed(SCHEMES)}")
        if scheme not in self.schemes:
            allowed = _listed(sorted(self.schemes)) or "nothing"
            raise BadInput(part, f"{scheme}:// is not allowed here, only {allowed}; VMAFX_MEDIA_SCHEMES says so")

    def bound(self, size: int, shown: str, part: Part) -> None:
        if size > self.max_bytes:
            # A model's bound is not the variable's.
            cure = "" if part == "model" else "; use a smaller one, or raise VMAFX_MEDIA_MAX_BYTES"
            raise BadInput(part, f"{shown} is larger than the {in_units(self.max_bytes)} allowed{cure}")


def in_units(size: int) -> str:
    """A size as people say it."""
    for unit, shift in reversed(_UNITS.items()):
        if shift and size >= 1 << shift:
            return f"{size / (1 << shift):.4g} {unit}B"
    return f"{size} bytes"


def _listed(schemes: Iterable[str]) -> str:
    return ", ".join(f"{one}://" for one in schemes)


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


def _size(text: str) -> int:
    found = re.fullmatch(r"([1-9][0-9]{0,17})(|Ki|Mi|Gi|Ti)", text)
    if found is None:
        raise ValueError(f"{text!r} is no size such as 10Gi, 500Mi or a number of bytes")
    return int(found[1]) << _UNITS[found[2]]


SETTINGS = (
    Setting(
        "schemes",
        "How clips may be named, separated by commas; `file` stands for paths.",
        default=",".join(SCHEMES),
        variable="VMAFX_MEDIA_SCHEMES",
        parse=_schemes,
    ),
    Setting(
        "roots",
        "Folders below which local clips must lie, separated by colons; without it, anywhere.",
        variable="VMAFX_MEDIA_ROOTS",
        parse=_roots,
    ),
    Setting(
        "private",
        "Whether a URL may lead to a private, loopback or link-local address.",
        default="false",
        variable="VMAFX_MEDIA_ALLOW_PRIVATE",
        parse=truth,
    ),
    Setting(
        "max_bytes",
        "The largest clip, such as `10Gi`, `500Mi` or a number of bytes.",
        default="64Gi",
        variable="VMAFX_MEDIA_MAX_BYTES",
        parse=_size,
    ),
)
