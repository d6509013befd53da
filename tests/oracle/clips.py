"""Deterministic test clips, each with a distorted version."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.oracle.planes import Luma, Plane

Frames = NDArray[np.float64]  # frames, rows, columns; in 8-bit levels
Scene = Callable[[np.random.Generator, int, int, int], Frames]
Distortion = Callable[[np.random.Generator, Frames], Frames]


@dataclass(frozen=True)
class Clip:
    """Luma planes of one size; as a file, 4:2:0 with grey chroma."""

    planes: tuple[Luma, ...]
    bit_depth: int

    @property
    def size(self) -> tuple[int, int]:
        height, width = self.planes[0].shape
        return width, height

    @property
    def pixel_format(self) -> str:
        return "yuv420p" if self.bit_depth == 8 else f"yuv420p{self.bit_depth}le"

    def write(self, path: Path) -> Path:
        width, height = self.size
        chroma = np.full(2 * ((width + 1) // 2) * ((height + 1) // 2), 1 << (self.bit_depth - 1))
        with path.open("wb") as file:
            for plane in self.planes:
                file.write(plane.tobytes())
                file.write(chroma.astype(plane.dtype).tobytes())
        return path


def pair(
    scene: Scene, distortion: Distortion, *, size: tuple[int, int], frames: int, bit_depth: int, seed: int = 1
) -> tuple[Clip, Clip]:
    """A reference and a distorted version of it."""
    rng = np.random.default_rng(seed)
    width, height = size
    reference = scene(rng, frames, height, width)
    return _quantised(reference, bit_depth), _quantised(distortion(rng, reference), bit_depth)


def _quantised(frames: Frames, bit_depth: int) -> Clip:
    levels = np.clip(np.rint(frames * (1 << (bit_depth - 8))), 0, (1 << bit_depth) - 1)
    return Clip(tuple(levels.astype("<u2" if bit_depth > 8 else "u1")), bit_depth)


def noise(rng: np.random.Generator, frames: int, height: int, width: int) -> Frames:
    return 128 + 40 * rng.standard_normal((frames, height, width))


def texture(rng: np.random.Generator, height: int, width: int) -> Plane:
    """Detail at every size, much as in a photograph: noise with a spectrum that falls with the frequency."""
    spectrum = np.fft.rfft2(rng.standard_normal((height, width)))
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width))
    plane: Plane = np.fft.irfft2(spectrum / np.maximum(frequency, 1 / max(height, width)), (height, width))
    return 125 + plane * (45 / float(plane.std()))


def panning(rng: np.random.Generator, frames: int, height: int, width: int) -> Frames:
    wide = texture(rng, height + 2 * frames, width + 5 * frames)
    return np.stack([wide[2 * t : 2 * t + height, 5 * t : 5 * t + width] for t in range(frames)])


def still(rng: np.random.Generator, frames: int, height: int, width: int) -> Frames:
    return np.repeat(texture(rng, height, width)[None], frames, axis=0)


def gradients(_: np.random.Generator, frames: int, height: int, width: int) -> Frames:
    """Slow ramps in both directions, drifting: little variance anywhere, so that rounding shows."""
    t, y, x = np.ogrid[:frames, :height, :width]
    ramps: Frames = 40 + 150 * x / width + 40 * y / height + 0.7 * t + 8 * np.sin((x + 2 * y) / 60 + t / 3)
    return ramps


def hard_cut(rng: np.random.Generator, frames: int, height: int, width: int) -> Frames:
    cut = frames // 2
    before, after = (panning(rng, frames, height, width) for _ in range(2))
    return np.concatenate([before[:cut], after[cut:] * 0.6 + 80])


def dark(rng: np.random.Generator, frames: int, height: int, width: int) -> Frames:
    """A night scene of a few levels above black."""
    return 6 + (panning(rng, frames, height, width) - 125) / 15


def edges(_: np.random.Generator, frames: int, height: int, width: int) -> Frames:
    """Black and white bars that cross, moving: maximum contrast."""
    t, y, x = np.ogrid[:frames, :height, :width]
    bars: Frames = (((x + 3 * t) // 11 + (y + t) // 7) % 2).astype(np.float64)
    return 255 * bars


def flat(_: np.random.Generator, frames: int, height: int, width: int) -> Frames:
    return np.full((frames, height, width), 90.0)


def unchanged(_: np.random.Generator, frames: Frames) -> Frames:
    return frames


def grain(rng: np.random.Generator, frames: Frames) -> Frames:
    return frames + 6 * rng.standard_normal(frames.shape)


def banding(_: np.random.Generator, frames: Frames) -> Frames:
    """Reduced to 24 levels, as by a coarse quantiser."""
    return np.floor(frames / 10) * 10 + 5


def blur(_: np.random.Generator, frames: Frames) -> Frames:
    for axis in (1, 2):
        frames = sum((np.roll(frames, shift, axis) for shift in range(-2, 3)), np.zeros_like(frames)) / 5
    return frames


def rescaled(_: np.random.Generator, frames: Frames) -> Frames:
    """Scaled to a third and back without interpolation, in blocks."""
    _, height, width = frames.shape
    return frames[:, ::3, ::3].repeat(3, axis=1).repeat(3, axis=2)[:, :height, :width]


def more_contrast(_: np.random.Generator, frames: Frames) -> Frames:
    return 125 + (frames - 125) * 1.25


def less_contrast(_: np.random.Generator, frames: Frames) -> Frames:
    return 125 + (frames - 125) * 0.7


def sharpened(rng: np.random.Generator, frames: Frames) -> Frames:
    return frames + 0.8 * (frames - blur(rng, frames))
