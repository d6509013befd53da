"""What the decoder is asked and answers, as lines of JSON on its standard input and output.

The decoder may be under the control of a clip, so answers have limits too, and none of their text reaches a command.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vmafx.api.scoring import RawFormat
from vmafx.scoring.clip import Clip, Count

MAX_ANSWER = 16 << 20  # bytes
MAX_PICTURES = 100
RAW_VIDEO_REMEDY = "for raw video, use --size and --pix-fmt"  # names flags of `vmafx score`
Line = Annotated[str, Meta(max_length=1000, pattern=r"^[ -~]*\Z")]  # may be printed


class DecoderSetup(msgspec.Struct, frozen=True):
    """The decoder's argument."""

    parent: int  # the decoder ends with this process
    clip: int  # file descriptor
    outputs: tuple[int, ...]  # file descriptors of pipes for raw frames
    memory: int  # limit, in bytes


class Ready(msgspec.Struct, frozen=True):
    """The decoder's first line: it has locked itself in, and has not read the clip. What follows may be the clip's."""

    version: str  # names and versions of its libraries
    confined: bool  # by seccomp
    sandbox: str  # what is in force, for people


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """The format of the frames that the decoder emits, and how they are converted to it."""

    width: int
    height: int
    pixel_format: str  # planar YUV, little-endian
    full_range: bool = False
    from_full_range: bool = False  # of the decoded frames
    matrix: str = ""  # to convert RGB with
    rate: str | None = None  # repeat and drop frames for this frame rate; None to keep the frames as they are
    own_rate: str | None = None  # that of the clip, if it is constant: timestamps are then computed from frame numbers


class _ClipTask(msgspec.Struct, frozen=True, kw_only=True):
    raw: RawFormat | None = None
    pixels: int  # limit per frame
    frames: int  # limit


class InspectTask(_ClipTask, frozen=True, kw_only=True, tag="inspect"):
    """Demux the whole clip and decode one frame. The answer is a Clip."""


class DecodeTask(_ClipTask, frozen=True, kw_only=True, tag="decode"):
    """Emit the frames [first, end) to the first `outputs` pipes. The answers are DecodeProgress, then DecodedClip."""

    conversion: Conversion
    luma_only: bool = False  # emit the first plane of each frame, and no chroma
    outputs: int = 1
    first: int = 0
    end: int | None = None  # None for all frames
    threads: int = 1


class PicturesTask(_ClipTask, frozen=True, kw_only=True, tag="pictures"):
    """Make JPEG pictures of frames. The answer is Pictures."""

    conversion: Conversion
    numbers: tuple[int, ...]  # in ascending order
    threads: int = 1


Task = InspectTask | DecodeTask | PicturesTask


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """The clip cannot be read or exceeds a limit."""

    why: Line
    remedy: Literal["", RAW_VIDEO_REMEDY] = ""  # type: ignore[valid-type]


class InspectedClip(msgspec.Struct, frozen=True, tag="clip"):
    clip: Clip


class FormatChange(msgspec.Struct, frozen=True):
    """A frame whose size or format differs from the first one of its clip."""

    size_only: bool  # same aspect ratio, pixel format and colours
    description: Line


class DecodeProgress(msgspec.Struct, frozen=True, tag="progress"):
    """Sent about once a second."""

    frames: Count


class DecodedClip(msgspec.Struct, frozen=True, tag="decoded"):
    """The number of frames after the conversion, that of errors, and the first change of format of each kind."""

    frames: Count
    errors: Count = 0
    changes: Annotated[tuple[FormatChange, ...], Meta(max_length=2)] = ()


class Pictures(msgspec.Struct, frozen=True, tag="pictures"):
    jpegs: Annotated[tuple[bytes, ...], Meta(max_length=MAX_PICTURES)]


Answer = InspectedClip | Refusal | DecodeProgress | DecodedClip | Pictures
