"""Clips that are open, and clips that are known: what a comparison starts from."""

import msgspec

from vmafx.scoring.clip import Clip
from vmafx.scoring.decoder.clip_decoder import ClipDecoder
from vmafx.scoring.decoder.formats import WITHOUT_TIMESTAMPS
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

    @property
    def bitrate(self) -> float | None:
        """Bits per second of the whole file. None if nothing states how long the clip is."""
        clip = self.clip
        unknown = clip.duration == 0 or (clip.container in WITHOUT_TIMESTAMPS and clip.frame_rate is None)
        return None if unknown else round(self.opened.size * 8 / clip.duration, 1)
