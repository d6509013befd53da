"""Two pictures of a frame, as the page shows them."""

import msgspec


class Picture(msgspec.Struct, frozen=True):
    """One frame as it was and as it became, both as JPEG."""

    frame: int
    score: float
    reference: bytes
    distorted: bytes
