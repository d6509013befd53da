"""Clips that are open, and clips that are known: what a comparison starts from."""

import msgspec

from vmafx.scoring.clip import Clip
from vmafx.scoring.decoder.clip_decoder import ClipDecoder
from vmafx.scoring.errors import InputPart
from vmafx.scoring.media.access import OpenedMedia
from vmafx.scoring.request import Source


class OpenedClip(msgspec.Struct, frozen=True):
    """A clip that is open and not yet probed."""

    source: Source
    part: InputPart
    opened: OpenedMedia
    decoder: ClipDecoder


class ProbedClip(msgspec.Struct, frozen=True):
    """A clip that was opened, probed and hashed."""

    source: Source
    opened: OpenedMedia
    decoder: ClipDecoder
    clip: Clip
    digest: str  # SHA-256, in hex
