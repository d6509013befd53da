"""The options that `score` and `submit` share: how to score, and the format of raw video."""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, get_args, get_type_hints

import msgspec
import typer

from vmafx.api.scoring import DEFAULT_MODEL, Feature, PixelFormat, RawFormat, ScoringOptions
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.uri import display_name
from vmafx.scoring.request import check_options

RAW_EXTENSIONS = (".yuv", ".raw")
CONTAINER_EXTENSIONS = (
    ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".m2ts", ".mxf", ".mpg", ".mpeg", ".flv", ".ivf", ".y4m",
)  # fmt: skip
SCORING, RAW_VIDEO = "Scoring", "Raw video"
_DEFAULT = ScoringOptions()

_option = functools.partial(typer.Option, rich_help_panel=SCORING)
_raw_option = functools.partial(typer.Option, rich_help_panel=RAW_VIDEO)


class ScoringFlags(msgspec.Struct, frozen=True, kw_only=True):
    """One field per option. An option that sets a field of ScoringOptions has its name."""

    model: Annotated[
        str,
        _option(metavar="MODEL", help="VMAF model: a built-in one, one in VMAFX_MODEL_DIR, or a path or URI."),
    ] = DEFAULT_MODEL
    features: Annotated[
        list[str] | None,
        _option(
            "--feature",
            metavar="FEATURE",
            help=f"Additional feature to measure: {', '.join(get_args(Feature))}; may be repeated.",
        ),
    ] = None
    pooling: Annotated[
        str,
        _option(
            "--pool",
            "--pooling",
            metavar="METHOD",
            help="How to pool frame scores: mean, harmonic_mean, min, max, median, or p1 to p99.",
        ),
    ] = _DEFAULT.pooling
    subsample: Annotated[int, _option(metavar="N", help="Score every Nth frame only.")] = _DEFAULT.subsample
    threads: Annotated[
        int | None, _option(metavar="N", help="Threads per clip, 0 for all cores (default: VMAFX_THREADS, or 0).")
    ] = None

    size: Annotated[str, _raw_option(metavar="WxH", help="Frame size of raw clips.")] = ""
    pix_fmt: Annotated[str, _raw_option(metavar="FORMAT", help="Pixel format of raw clips (default: yuv420p).")] = ""
    fps: Annotated[float | None, _raw_option(metavar="RATE", help="Frame rate of raw clips.")] = None
    distorted_size: Annotated[
        str, _raw_option(metavar="WxH", help="Frame size of raw distorted clips (default: --size).")
    ] = ""
    distorted_pix_fmt: Annotated[
        str, _raw_option(metavar="FORMAT", help="Pixel format of raw distorted clips (default: --pix-fmt).")
    ] = ""

    def options(self) -> ScoringOptions:
        """The options as a job has them; BadInput for values that a job could not have."""
        values = {name: getattr(self, name) for name in ScoringOptions.__struct_fields__}
        values |= {"features": _parse_features(self.features or []), "threads": self.threads or None}
        options = ScoringOptions(**values)
        check_options(options)
        return options

    def formats(self, reference: str, distorted: Sequence[str]) -> list[RawFormat | None]:
        """The raw format of each clip, the reference first; None for a clip in a container.

        A format applies to the clips with a raw extension; if none has one, to all.
        """
        reference_format = _raw_format(self.size, self.pix_fmt, self.fps)
        distorted_format = _raw_format(
            self.distorted_size or self.size, self.distorted_pix_fmt or self.pix_fmt, self.fps
        )
        clips = [(reference, reference_format), *((name, distorted_format) for name in distorted)]
        by_extension = any(_has_extension(name, RAW_EXTENSIONS) for name, _ in clips)
        formats = [
            raw_format if not by_extension or _has_extension(name, RAW_EXTENSIONS) else None
            for name, raw_format in clips
        ]
        for (name, _), raw_format in zip(clips, formats, strict=True):
            if raw_format is not None and _has_extension(name, CONTAINER_EXTENSIONS):
                problem = f"--size makes vmafx read {display_name(name)} as raw video"
                raise BadInput("options", f"{problem}; omit it for container files, which have a header")
            if raw_format is None and _has_extension(name, (".yuv",)):
                problem = "a .yuv clip has no header"
                raise BadInput("options", f"{problem}; specify its --size, such as 1920x1080, and its --pix-fmt")
        if (self.distorted_size or self.distorted_pix_fmt) and not any(formats[1:]):
            problem = "--distorted-size and --distorted-pix-fmt are for raw video, but no distorted clip is raw"
            raise BadInput("options", problem)
        return formats


def with_scoring_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its parameter `flags` replaced by one option per field of ScoringFlags."""
    signature, hints = inspect.signature(command), get_type_hints(ScoringFlags, include_extras=True)
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in msgspec.structs.fields(ScoringFlags)
    ]
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        keyword_only = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        parameters += options if parameter.name == "flags" else [keyword_only]

    @functools.wraps(command)
    def expanded(**values: Any) -> None:
        flags = ScoringFlags(**{option.name: values.pop(option.name) for option in options})
        command(flags=flags, **values)

    expanded.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return expanded


def parse_size(text: str, option: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})", text)
    if match is None:
        raise BadInput("options", f"{option} {text!r} is not a size; use e.g. 1920x1080")
    return int(match[1]), int(match[2])


def _parse_features(texts: Sequence[str]) -> tuple[Feature, ...]:
    """Each text names one feature, or several separated by commas."""
    names = [name for text in texts for name in text.split(",") if name]
    known = get_args(Feature)
    if unknown := [name for name in names if name not in known]:
        raise BadInput("options", f"unknown feature {', '.join(unknown)}; choose from {', '.join(known)}")
    return msgspec.convert(tuple(dict.fromkeys(names)), tuple[Feature, ...])


def _raw_format(size: str, pix_fmt: str, fps: float | None) -> RawFormat | None:
    if not size:
        if pix_fmt or fps is not None:
            raise BadInput("options", "--pix-fmt and --fps are for raw video, which also needs --size")
        return None
    pix_fmt = pix_fmt or "yuv420p"
    width, height = parse_size(size, "--size")
    if pix_fmt not in get_args(PixelFormat):
        raise BadInput("options", f"unknown --pix-fmt {pix_fmt!r}; choose from {', '.join(get_args(PixelFormat))}")
    fields = {"width": width, "height": height, "pixelFormat": pix_fmt, "frameRate": fps}
    try:
        return msgspec.convert(fields, RawFormat)
    except msgspec.ValidationError as error:
        raise BadInput("options", f"--size {size} --fps {fps}: {error}") from error


def _has_extension(name: str, extensions: tuple[str, ...]) -> bool:
    path = re.split(r"[?#]", name, maxsplit=1)[0] if "://" in name else name  # a signed URL ends with its signature
    return path.lower().endswith(extensions)
