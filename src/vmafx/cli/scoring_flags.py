"""The options that `score` and `submit` share: how to score, and what raw video is."""

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

RAW_NAMES = (".yuv", ".raw")
CONTAINER_NAMES = (
    ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".ts", ".m2ts", ".mxf", ".mpg", ".mpeg", ".flv", ".ivf", ".y4m",
)  # fmt: skip
SCORING, RAW_VIDEO = "Scoring", "Raw video"
_DEFAULT = ScoringOptions()

_option = functools.partial(typer.Option, rich_help_panel=SCORING)
_raw_option = functools.partial(typer.Option, rich_help_panel=RAW_VIDEO)


class ScoringFlags(msgspec.Struct, frozen=True, kw_only=True):
    """A field for each option. Those that are fields of ScoringOptions have the same name there."""

    model: Annotated[str, _option(help="A built-in model, the name of one in VMAFX_MODEL_DIR, or a path or URI.")] = (
        DEFAULT_MODEL
    )
    features: Annotated[
        list[str] | None,
        _option("--feature", help=f"Measure this too: {', '.join(get_args(Feature))}; may be given more than once."),
    ] = None
    pooling: Annotated[
        str,
        _option(
            "--pool",
            "--pooling",
            help="How frames become one score: mean, harmonic_mean, min, max, median, p1 to p99.",
        ),
    ] = _DEFAULT.pooling
    subsample: Annotated[int, _option(help="Score every n-th frame only.")] = _DEFAULT.subsample
    threads: Annotated[
        int | None, _option(help="Threads for each score; 0 for all cores, as without VMAFX_THREADS.")
    ] = None

    size: Annotated[str, _raw_option(metavar="WxH", help="Size of a raw clip.")] = ""
    pix_fmt: Annotated[str, _raw_option(help="Its pixel format; yuv420p if not said.")] = ""
    fps: Annotated[float | None, _raw_option(help="Its frames per second.")] = None
    distorted_size: Annotated[str, _raw_option(metavar="WxH", help="Size of the distorted one, if another.")] = ""
    distorted_pix_fmt: Annotated[str, _raw_option(help="Pixel format of the distorted one, if another.")] = ""

    def options(self) -> ScoringOptions:
        """As a job has them; BadInput for what a job would not be accepted with."""
        given = {name: getattr(self, name) for name in ScoringOptions.__struct_fields__}
        given |= {"features": _features(self.features or []), "threads": self.threads or None}
        options = ScoringOptions(**given)
        check_options(options)
        return options

    def formats(self, reference: str, distorted: Sequence[str]) -> list[RawFormat | None]:
        """Of each clip, the reference's first. A format is for clips with a raw clip's name; if none has, for all."""
        raw = _raw_format(self.size, self.pix_fmt, self.fps)
        other = _raw_format(self.distorted_size or self.size, self.distorted_pix_fmt or self.pix_fmt, self.fps)
        pairs = [(reference, raw), *((name, other) for name in distorted)]
        some_named_raw = any(_named(name, RAW_NAMES) for name, _ in pairs)
        found = [given if not some_named_raw or _named(name, RAW_NAMES) else None for name, given in pairs]
        for (name, _), form in zip(pairs, found, strict=True):
            if form is not None and _named(name, CONTAINER_NAMES):
                happens = f"--size makes vmafx read {display_name(name)} as raw video"
                raise BadInput("options", f"{happens}; leave it out for container files, which say their own size")
            if form is None and _named(name, (".yuv",)):
                why = "a .yuv clip does not say its size; give --size, such as 1920x1080, and --pix-fmt"
                raise BadInput("options", why)
        if (self.distorted_size or self.distorted_pix_fmt) and not any(found[1:]):
            why = "--distorted-size and --distorted-pix-fmt are for raw video, and no distorted clip is raw"
            raise BadInput("options", why)
        return found


def with_scoring_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of ScoringFlags, in the place of its parameter `flags`."""
    signature, hints = inspect.signature(command), get_type_hints(ScoringFlags, include_extras=True)
    options = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name]
        )
        for field in msgspec.structs.fields(ScoringFlags)
    ]
    parameters: list[inspect.Parameter] = []
    for one in signature.parameters.values():
        by_name = one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        parameters += options if one.name == "flags" else [by_name]

    @functools.wraps(command)
    def expanded(**given: Any) -> None:
        flags = ScoringFlags(**{option.name: given.pop(option.name) for option in options})
        command(flags=flags, **given)

    expanded.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return expanded


def size_of(text: str, option: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})", text)
    if found is None:
        raise BadInput("options", f"{option} {text!r} is no size; write it as 1920x1080")
    return int(found[1]), int(found[2])


def _features(named: Sequence[str]) -> tuple[Feature, ...]:
    """Given one by one, or several with commas."""
    names = [name for one in named for name in one.split(",") if name]
    try:
        return msgspec.convert(tuple(dict.fromkeys(names)), tuple[Feature, ...])
    except msgspec.ValidationError as error:
        known = ", ".join(get_args(Feature))
        wrong = ", ".join(name for name in names if name not in get_args(Feature))
        raise BadInput("options", f"there is no feature {wrong}; there are {known}") from error


def _raw_format(wxh: str, pix_fmt: str, fps: float | None) -> RawFormat | None:
    if not wxh:
        if pix_fmt or fps is not None:
            raise BadInput("options", "--pix-fmt and --fps are for raw video, which needs --size too")
        return None
    pix_fmt = pix_fmt or "yuv420p"
    width, height = size_of(wxh, "--size")
    fields = {"width": width, "height": height, "pixelFormat": pix_fmt, "frameRate": fps}
    try:
        return msgspec.convert(fields, RawFormat)
    except msgspec.ValidationError as error:
        if pix_fmt not in get_args(PixelFormat):
            why = f"--pix-fmt {pix_fmt!r} is none of {', '.join(get_args(PixelFormat))}"
        else:
            why = f"--size {wxh} --fps {fps}: {error}"
        raise BadInput("options", why) from error


def _named(name: str, endings: tuple[str, ...]) -> bool:
    path = re.split(r"[?#]", name, maxsplit=1)[0] if "://" in name else name  # a signed URL ends in its signature
    return path.lower().endswith(endings)
