"""The options that `score` and `submit` share: how to score, and the format of raw video."""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Annotated, get_args

import msgspec
import typer

from vmafx.api.scoring import DEFAULT_MODEL, MAX_THREADS, Feature, PixelFormat, RawFormat, ScoringOptions
from vmafx.cli.options import with_fields_as_options
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.uri import display_name
from vmafx.scoring.request import check_options

RAW_EXTENSIONS = (".yuv", ".raw")
CONTAINER_EXTENSIONS = (
    ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".m2ts", ".mxf", ".mpg", ".mpeg", ".flv", ".ivf", ".y4m",
)  # fmt: skip
SCORING, RAW_VIDEO = "Scoring", "Raw video"
_DEFAULT = ScoringOptions()
_FLAGS = {"subsample": "--subsample", "pooling": "--pool", "features": "--feature", "threads": "--threads"}

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
    threads: int | None = None  # each command has its own help text

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
        if self.threads is not None and not 0 <= self.threads <= MAX_THREADS:
            raise BadInput("options", f"--threads must be 0 to {MAX_THREADS}, not {self.threads}")
        values = {name: getattr(self, name) for name in ScoringOptions.__struct_fields__}
        values |= {"features": _parse_features(self.features or []), "threads": self.threads or None}
        options = ScoringOptions(**values)
        check_options(options, _FLAGS)
        return options

    def formats(self, reference: str, distorted: Sequence[str]) -> list[RawFormat | None]:
        """The raw format of each clip, the reference first; None for a clip in a container.

        A format applies to the clips with a raw extension; if none has one, to all.
        """
        size, pix_fmt = ("--size", self.size), ("--pix-fmt", self.pix_fmt)
        distorted_size = ("--distorted-size", self.distorted_size) if self.distorted_size else size
        distorted_pix_fmt = ("--distorted-pix-fmt", self.distorted_pix_fmt) if self.distorted_pix_fmt else pix_fmt
        reference_format = _raw_format(size, pix_fmt, self.fps)
        distorted_format = _raw_format(distorted_size, distorted_pix_fmt, self.fps)
        clips = [(reference, reference_format), *((name, distorted_format) for name in distorted)]
        by_extension = any(_has_extension(name, RAW_EXTENSIONS) for name, _ in clips)
        formats = [
            raw_format if not by_extension or _has_extension(name, RAW_EXTENSIONS) else None
            for name, raw_format in clips
        ]
        for number, ((name, _), raw_format) in enumerate(zip(clips, formats, strict=True)):
            if raw_format is not None and _has_extension(name, CONTAINER_EXTENSIONS):
                option, _ = distorted_size if number else size
                problem = f"{option} is for raw video, but {display_name(name)} is a container file; omit it"
                raise BadInput("options", problem)
            if raw_format is None and _has_extension(name, (".yuv",)):
                problem = "a .yuv clip has no header"
                raise BadInput("options", f"{problem}; specify its --size, such as 1920x1080, and its --pix-fmt")
        given = [option for option, value in (distorted_size, distorted_pix_fmt) if value and "distorted" in option]
        if given and not any(formats[1:]):
            raise BadInput("options", f"{_are(given)} for raw video, but no distorted clip is raw")
        return formats


def with_scoring_flags(command: Callable[..., None], threads_help: str) -> Callable[..., None]:
    """The command with its parameter `flags` replaced by one option per field of ScoringFlags."""
    threads = Annotated[int | None, _option(metavar="N", help=threads_help)]
    return with_fields_as_options(command, "flags", ScoringFlags, threads=threads)


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


def _raw_format(size: tuple[str, str], pix_fmt: tuple[str, str], fps: float | None) -> RawFormat | None:
    """`size` and `pix_fmt` are the option that applies and its value."""
    (size_option, size_text), (pix_fmt_option, pixel_format) = size, pix_fmt
    if not size_text:
        given = [pix_fmt_option] if pixel_format else []
        given += [] if fps is None else ["--fps"]
        if given:
            raise BadInput("options", f"{_are(given)} for raw video, which also needs {size_option}")
        return None
    pixel_format = pixel_format or "yuv420p"
    width, height = parse_size(size_text, size_option)
    if pixel_format not in get_args(PixelFormat):
        known = ", ".join(get_args(PixelFormat))
        raise BadInput("options", f"unknown {pix_fmt_option} {pixel_format!r}; choose from {known}")
    fields = {"width": width, "height": height, "pixelFormat": pixel_format, "frameRate": fps}
    try:
        return msgspec.convert(fields, RawFormat)
    except msgspec.ValidationError as error:
        raise BadInput("options", f"{size_option} {size_text} --fps {fps}: {error}") from error


def _are(options: Sequence[str]) -> str:
    return f"{' and '.join(options)} {'is' if len(options) == 1 else 'are'}"


def _has_extension(name: str, extensions: tuple[str, ...]) -> bool:
    path = re.split(r"[?#]", name, maxsplit=1)[0] if "://" in name else name  # a signed URL ends with its signature
    return path.lower().endswith(extensions)
