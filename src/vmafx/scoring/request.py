"""What is to be scored, and how."""

from collections.abc import Mapping
from typing import Annotated, Self, get_type_hints

import msgspec

from vmafx import settings
from vmafx.api.schema import expected, field_schema
from vmafx.api.scoring import DEFAULT_MODEL, MAX_THREADS, RawFormat, ScoringOptions, ScoringSpec
from vmafx.cores import usable_cores
from vmafx.scoring.errors import BadInput
from vmafx.settings import Setting, Settings, at_least

_DECLARED = get_type_hints(ScoringOptions, include_extras=True)


def _threads(text: str) -> int | None:
    count = at_least(0)(text)
    if count > MAX_THREADS:
        raise ValueError(f"{text!r} is more than {MAX_THREADS}")
    return count or None


class OptionSettings(Settings):
    """What holds where neither a flag nor a job says otherwise."""

    threads: Annotated[int | None, Setting(
        "Threads for each score, where a job or the flag says nothing; 0 for all cores.", default="0",
        flag="--threads", variable="VMAFX_THREADS", parse=_threads,
    )] = None  # fmt: skip

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        try:
            return settings.from_environ(cls, environ)
        except settings.InvalidSetting as error:
            raise BadInput("options", str(error)) from error


class Source(msgspec.Struct, frozen=True):
    """A clip, by path or URI; raw video needs its format said."""

    uri: str
    format: RawFormat | None = None


class ScoreOptions(ScoringOptions, kw_only=True):
    """How to score: the options of a job, its model, and what only `vmafx score` offers.

    What is off by default would change what a score means: it has to be asked for. Without `threads`, there are as
    many as cores.
    """

    model: str = DEFAULT_MODEL
    size: tuple[int, int] | None = None  # score both clips at this size, not at the reference's
    shortest: bool = False  # leave out what one clip has beyond the end of the other
    conform: bool = False  # bring the distorted clip to the reference's frame rate
    stretch: bool = False  # compare clips of different shapes
    damaged: bool = False  # score a distorted clip with damage as it decodes

    @classmethod
    def of(cls, spec: ScoringSpec, threads: int | None = None) -> Self:
        """Those of a job; `threads` if it says nothing of them."""
        given = spec.options or ScoringOptions()
        return cls(model=spec.model, **msgspec.structs.asdict(given) | {"threads": given.threads or threads})

    def cores(self) -> int:
        return self.threads or min(usable_cores(), MAX_THREADS)


def check_options(options: ScoringOptions) -> None:
    """Raises BadInput for a value outside the limits that a job's options have."""
    for name, declared in _DECLARED.items():
        value = getattr(options, name)
        try:
            msgspec.convert(value, declared)
        except msgspec.ValidationError as error:
            limits = expected(field_schema(ScoringOptions, name)) or str(error)
            raise BadInput("options", f"{name} {limits}, not {value!r}") from error


class ClipLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a clip may ask of this machine."""

    pixels: int = 8192 * 4320  # in a frame
    frames: int = 2_000_000
    probe_seconds: float = 300.0
    memory: int = 4 << 30  # of the process that looks at a clip
