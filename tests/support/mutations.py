"""Mutations of clips: edits that break their structure, drawn from a random generator."""

import random
from collections.abc import Callable

MAX_EDITS = 4
NEAR = 1024  # bytes at either end of a clip, where most containers have their headers and indexes
BOUNDARIES = (0, 1, -1, 0x7F, 0x80, 0x7FFF, 0x8000, 0x7FFFFFFF, 0x80000000, 1 << 62, (1 << 63) - 1, 1 << 63)
# Codes of codecs in MP4, AVI and ASF. The last are of decoders for which there is no encoder here.
CODEC_TAGS = (b"avc1", b"hvc1", b"av01", b"vp09", b"mp4v", b"apcn", b"AVdn", b"CFHD", b"FFV1", b"HFYU", b"ULY0",
              b"M8Y0", b"MJPG", b"v210", b"rle ", b"png ", b"vvc1", b"WMV3", b"WVC1", b"vc-1")  # fmt: skip

Edit = Callable[[bytearray, bytes, random.Random], str]


def mutate(content: bytes, other: bytes, rng: random.Random) -> tuple[bytes, str]:
    """The mutated content and a description. `other` is the content of another clip, for splices."""
    mutated, edits = bytearray(content), rng.choices(EDITS, k=rng.randint(1, MAX_EDITS))
    descriptions = [edit(mutated, other, rng) for edit in edits]
    return bytes(mutated), ", ".join(descriptions)


def _position(content: bytes | bytearray, rng: random.Random) -> int:
    """Often near the start, sometimes near the end."""
    size = len(content)
    start, end = rng.choice([(0, NEAR), (0, NEAR), (size - NEAR, size), (0, size), (0, size)])
    return rng.randrange(max(0, start), max(1, min(size, end)))


def _length(content: bytearray, rng: random.Random) -> int:
    return min(len(content), 1 << rng.randint(0, 12))


def flip_bits(content: bytearray, _other: bytes, rng: random.Random) -> str:
    positions = [_position(content, rng) for _ in range(1 << rng.randint(0, 5))] if content else []
    for position in positions:
        content[position] ^= 1 << rng.randrange(8)
    return f"{len(positions)} bits flipped"


def overwrite(content: bytearray, _other: bytes, rng: random.Random) -> str:
    at, length = _position(content, rng), _length(content, rng)
    length = min(length, len(content) - at)
    content[at : at + length] = rng.choice([bytes(length), b"\xff" * length, rng.randbytes(length)])
    return f"{length} bytes overwritten at {at}"


def truncate(content: bytearray, _other: bytes, rng: random.Random) -> str:
    at = _position(content, rng)
    del content[at:]
    return f"truncated to {at} bytes"


def insert(content: bytearray, _other: bytes, rng: random.Random) -> str:
    at, length = _position(content, rng), 1 << rng.randint(0, 10)
    content[at:at] = rng.randbytes(length)
    return f"{length} bytes inserted at {at}"


def delete(content: bytearray, _other: bytes, rng: random.Random) -> str:
    at, length = _position(content, rng), _length(content, rng)
    del content[at : at + length]
    return f"{length} bytes deleted at {at}"


def duplicate(content: bytearray, _other: bytes, rng: random.Random) -> str:
    at, length, times = _position(content, rng), _length(content, rng), rng.choice([1, 1, 2, 50])
    content[at:at] = content[at : at + length] * times
    return f"{length} bytes at {at} repeated {times} times"


def swap(content: bytearray, _other: bytes, rng: random.Random) -> str:
    length = _length(content, rng)
    first, second = sorted(_position(content, rng) for _ in range(2))
    length = min(length, second - first, len(content) - second)
    one, two = content[first : first + length], content[second : second + length]
    content[first : first + length], content[second : second + length] = two, one
    return f"{length} bytes at {first} and {second} swapped"


def splice(content: bytearray, other: bytes, rng: random.Random) -> str:
    at, start = _position(content, rng), _position(other, rng)
    content[at:] = other[start:]
    return f"the other clip from {start} on spliced in at {at}"


def set_integer(content: bytearray, _other: bytes, rng: random.Random) -> str:
    """A value at the boundary of its type; or that of a length, changed by little."""
    width, order = rng.choice([1, 2, 4, 8]), rng.choice(["big", "little"])
    at = _position(content, rng)
    at -= at % rng.choice([1, 2, 4])
    old = int.from_bytes(content[at : at + width], order)  # type: ignore[arg-type]
    value = rng.choice([*BOUNDARIES, old + 1, old - 1, old * 2, -old]) % (1 << 8 * width)
    content[at : at + width] = value.to_bytes(width, order)  # type: ignore[arg-type]
    return f"{width}-byte integer at {at} set to {value:#x}"


def change_codec(content: bytearray, _other: bytes, rng: random.Random) -> str:
    """Its packets go to another decoder."""
    present = [tag for tag in CODEC_TAGS if tag in content]
    if not present:
        return flip_bits(content, b"", rng)
    old, new = rng.choice(present), rng.choice(CODEC_TAGS)
    content[:] = content.replace(old, new)
    return f"codec {old.decode()} renamed to {new.decode()}"


EDITS: tuple[Edit, ...] = (
    flip_bits, overwrite, truncate, insert, delete, duplicate, swap, splice, set_integer, set_integer, change_codec
)  # fmt: skip
