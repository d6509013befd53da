"""Raw video and further measures, as the options of `score` and `submit` describe them."""

import re
from collections.abc import Sequence
from typing import Annotated, get_args

import msgspec
import typer

from vmafx.api.job import Feature, PixelFormat, RawFormat
from vmafx.scoring.errors import BadInput

RAW_NAMES = (".yuv", ".raw")
PANEL = "Raw video"

Size = Annotated[str, typer.Option(metavar="WxH", help="Size of a raw clip.", rich_help_panel=PANEL)]
PixFmt = Annotated[str, typer.Option(help="Its pixel format; yuv420p if not said.", rich_help_panel=PANEL)]
Fps = Annotated[float | None, typer.Option(help="Its frames per second.", rich_help_panel=PANEL)]
DistortedSize = Annotated[
    str, typer.Option(metavar="WxH", help="Size of the distorted one, if another.", rich_help_panel=PANEL)
]
DistortedPixFmt = Annotated[
    str, typer.Option(help="Pixel format of the distorted one, if another.", rich_help_panel=PANEL)
]


def features(named: Sequence[str]) -> tuple[Feature, ...]:
    """Given one by one, or several with commas."""
    names = [name for one in named for name in one.split(",") if name]
    try:
        return msgspec.convert(tuple(dict.fromkeys(names)), tuple[Feature, ...])
    except msgspec.ValidationError as error:
        known = ", ".join(get_args(Feature))
        wrong = ", ".join(name for name in names if name not in get_args(Feature))
        raise BadInput("options", f"there is no feature {wrong}; there are {known}") from error


def size(text: str, option: str) -> tuple[int, int]:
    found = re.fullmatch(r"([1-9][0-9]{0,4})x([1-9][0-9]{0,4})", text)
    if found is None:
        raise BadInput("options", f"{option} {text!r} is no size; write it as 1920x1080")
    return int(found[1]), int(found[2])


def raw_format(wxh: str, pix_fmt: str, fps: float | None) -> RawFormat | None:
    if not wxh:
        if pix_fmt or fps is not None:
            raise BadInput("options", "--pix-fmt and --fps are for raw video, which needs --size too")
        return None
    pix_fmt = pix_fmt or "yuv420p"
    width, height = size(wxh, "--size")
    fields = {"width": width, "height": height, "pixelFormat": pix_fmt, "frameRate": fps}
    try:
        return msgspec.convert(fields, RawFormat)
    except msgspec.ValidationError as error:
        if pix_fmt not in get_args(PixelFormat):
            why = f"--pix-fmt {pix_fmt!r} is none of {', '.join(get_args(PixelFormat))}"
        else:
            why = f"--size {wxh} --fps {fps}: {error}"
        raise BadInput("options", why) from error


def formats(
    reference: str, distorted: Sequence[str], raw: RawFormat | None, distorted_raw: RawFormat | None
) -> list[RawFormat | None]:
    """A format is for the clips whose names say that they are raw; if none does, for all. The reference comes first."""
    said = any(_is_raw(name) for name in (reference, *distorted))
    pairs = [(reference, raw), *((name, distorted_raw) for name in distorted)]
    return [given if not said or _is_raw(name) else None for name, given in pairs]


def _is_raw(name: str) -> bool:
    return name.lower().endswith(RAW_NAMES)
