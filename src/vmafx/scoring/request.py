"""A scoring request: the clips, the options and the limits."""

import re
from collections.abc import Mapping
from typing import Annotated, Self, get_type_hints

import msgspec
from msgspec import Meta

from vmafx import settings
from vmafx.api.fields import doc
from vmafx.api.hardware import AUTO, BACKEND_VARIABLE, BACKENDS, Backend, parse_backend
from vmafx.api.schema import expected, field_schema
from vmafx.api.scoring import (
    AUTO_THREADS_VARIABLE,
    DEFAULT_MODEL,
    MAX_THREADS,
    Dimension,
    Feature,
    Pooling,
    RawFormat,
    ScoringOptions,
    ScoringSpec,
)
from vmafx.cores import share_of_cores, usable_cores
from vmafx.scoring.errors import BadInput
from vmafx.settings import Setting, Settings, at_least

THREADS_VARIABLE = "VMAFX_THREADS"
_SIZE = re.compile(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})")
_OPTION_TYPES = get_type_hints(ScoringOptions, include_extras=True)


def _parse_threads(text: str) -> int | None:
    count = at_least(0)(text)
    if count > MAX_THREADS:
        raise ValueError(f"{text!r} is more than {MAX_THREADS}")
    return count or None


class OptionSettings(Settings):
    """Defaults for options that neither a flag nor a job sets."""

    threads: Annotated[int | None, Setting(
        "Threads per score if neither the job nor the flag sets them; 0 for all cores, or VMAFX_AUTO_THREADS.",
        default="0",
        flag="--threads", variable=THREADS_VARIABLE, parse=_parse_threads,
    )] = None  # fmt: skip
    auto_threads: Annotated[int | None, Setting(
        "Maximum threads of a job for which nothing else sets them, unless it has a CPU limit; 0 for all cores. The"
        " operator sets it in worker Pods.", default="0",
        variable=AUTO_THREADS_VARIABLE, parse=_parse_threads,
    )] = None  # fmt: skip
    backend: Annotated[Backend | None, Setting(
        f"Backend to score on if neither the job nor the flag names one: {', '.join(BACKENDS)}; "
        f"{AUTO} for the best engine of the machine.",
        default=AUTO, flag="--backend", variable=BACKEND_VARIABLE, parse=parse_backend,
    )] = None  # fmt: skip

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Self:
        try:
            return settings.from_environ(cls, environ)
        except settings.InvalidSetting as error:
            raise BadInput("options", str(error)) from error


class Source(msgspec.Struct, frozen=True):
    """A clip by path or URI. Raw video has no header, so it needs a `format`."""

    uri: str
    format: RawFormat | None = None


class ScoreOptions(ScoringOptions, kw_only=True):
    """How to score: the options of a job, its model, and options that only `vmafx score` has.

    Flags that change what a score means are off by default. Without `threads`, all cores are used.
    """

    model: str = DEFAULT_MODEL
    backend: Backend | None = None  # None for the best that the machine has
    size: tuple[int, int] | None = None  # compare both clips at this size instead of the reference's
    shortest: bool = False  # score only the frames that both clips have
    conform: bool = False  # convert both clips to the reference's frame rate
    stretch: bool = False  # compare clips of different aspect ratios
    damaged: bool = False  # score damaged clips as they decode

    @classmethod
    def of(cls, spec: ScoringSpec, defaults: OptionSettings | None = None) -> Self:
        """The options of a job; `defaults` apply where the job sets nothing."""
        given, defaults = spec.options or ScoringOptions(), defaults or OptionSettings()
        threads = given.threads or defaults.threads
        if threads is None and defaults.auto_threads is not None:
            threads = min(share_of_cores(defaults.auto_threads), MAX_THREADS)
        return cls(
            model=spec.model,
            backend=spec.backend or defaults.backend,
            **msgspec.structs.asdict(given) | {"threads": threads},
        )

    def thread_count(self) -> int:
        return self.threads or min(usable_cores(), MAX_THREADS)


def check_options(options: ScoringOptions, flags: Mapping[str, str] = {}) -> None:
    """Raises BadInput for a value outside the limits of the API; it names the field, or its flag if `flags` has one."""
    for name, declared in _OPTION_TYPES.items():
        value = getattr(options, name)
        try:
            msgspec.convert(value, declared)
        except msgspec.ValidationError as error:
            limits = expected(field_schema(ScoringOptions, name)) or str(error)
            raise BadInput("options", f"{flags.get(name, name)} {limits}, not {value!r}") from error


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The options of `vmafx score` as requests to a server have them; the server decides on threads."""

    subsample: Annotated[int, doc("Score every n-th frame.")] = 1
    pooling: Annotated[
        Pooling, doc("How the scores of frames are combined: mean, harmonic_mean, min, max, median, or p1 to p99.")
    ] = "mean"
    features: Annotated[
        tuple[Feature, ...], Meta(max_length=6), doc("Features to measure in addition to VMAF, such as psnr.")
    ] = ()
    size: Annotated[str, doc("Size to compare at, such as 1920x1080. Default: that of the reference.")] = ""
    shortest: Annotated[bool, doc("Score only the common part of clips of different length.")] = False
    conform: Annotated[bool, doc("Convert both clips to the frame rate of the reference.")] = False
    stretch: Annotated[bool, doc("Allow different aspect ratios; the distorted clip is stretched.")] = False
    damaged: Annotated[bool, doc("Allow damaged clips; what decodes is scored.")] = False

    def score_options(self, model: str, backend: Backend | None, threads: int | None) -> ScoreOptions:
        """Raises BadInput for a value outside the limits of the API."""
        given = {field: getattr(self, field) for field in RequestOptions.__struct_fields__}
        size = _parse_size(given.pop("size"))
        options = ScoreOptions(**given, size=size, model=model, backend=backend, threads=threads)
        check_options(options)
        return options


def _parse_size(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    match = _SIZE.fullmatch(text)
    try:
        if match is not None:
            return msgspec.convert((int(match[1]), int(match[2])), tuple[Dimension, Dimension])
    except msgspec.ValidationError:
        pass
    raise BadInput("options", f"size must be WIDTHxHEIGHT, such as 1920x1080, not {text[:20]!r}")


class ClipLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on the resources that one clip may use."""

    pixels: int = 8192 * 4320  # per frame
    frames: int = 2_000_000
    probe_seconds: float = 300.0  # to inspect a clip, on a fast disk
    frame_seconds: float = 10.0  # of CPU time, to decode a frame
    memory: int = 8 << 30  # bytes of address space, for its decoder
