"""The kernels compute what plain PyTorch computes, for any samples, size and bit depth."""

import numpy as np
import pytest
import torch

from tests.gpu.conftest import ON_DEVICE
from tests.gpu.measuring import frame_sums
from tests.oracle.clips import Clip

SIZES = [(64, 64), (97, 71), (257, 129), (640, 362), (1921, 1083)] if ON_DEVICE else [(64, 64), (97, 71)]
RELATIVE = 2e-5  # a fifth of the bound on features
pytestmark = pytest.mark.timeout(900)  # the interpreter takes a second or more for a kernel


def clip_of(samples: np.ndarray, bit_depth: int) -> Clip:
    return Clip(tuple(samples.astype("u1" if bit_depth == 8 else "<u2")), bit_depth)


def random_pair(size: tuple[int, int], bit_depth: int, frames: int = 2) -> tuple[Clip, Clip]:
    rng, (width, height) = np.random.default_rng(5), size
    samples = rng.integers(0, 1 << bit_depth, (2, frames, height, width))
    return clip_of(samples[0], bit_depth), clip_of(samples[1], bit_depth)


def assert_same(pair: tuple[Clip, Clip], gain_limit: float, device: torch.device) -> None:
    """Machines differ in roundings of logarithms of numbers next to 1, and of squares of detail to fixed point.

    These are much of a sum that is close to zero, or of the few pixels of a small band.
    """
    fused, plain = (frame_sums(kind, pair, gain_limit, device) for kind in ("kernels", "plain"))
    width, height = pair[0].size
    per_pixel = 1e-8  # a hundredth of the bound on features, which are sums divided by sums over all pixels
    np.testing.assert_allclose(fused.reference, plain.reference, RELATIVE, per_pixel * width * height)
    np.testing.assert_allclose(fused.distorted, plain.distorted, RELATIVE, per_pixel * width * height)
    np.testing.assert_array_equal(fused.differences[1:], plain.differences[1:])


@pytest.mark.parametrize("gain_limit", [100.0, 1.0])
@pytest.mark.parametrize("bit_depth", [8, 10, 12, 16])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_random_samples(size: tuple[int, int], bit_depth: int, gain_limit: float, device: torch.device) -> None:
    assert_same(random_pair(size, bit_depth), gain_limit, device)


@pytest.mark.parametrize("bit_depth", [8, 10, 16])
def test_extreme_samples(bit_depth: int, device: torch.device) -> None:
    """Sums are the largest, and differences, where all samples are the lowest or the highest."""
    most, (height, width) = (1 << bit_depth) - 1, (66, 70)
    rows, columns = np.ogrid[:height, :width]
    planes = [np.full((height, width), level) for level in (0, most)]
    planes += [most * ((rows + columns) % 2), most * (columns // 4 % 2) * np.ones_like(rows)]
    reference = clip_of(np.stack(planes), bit_depth)
    distorted = clip_of(np.stack([planes[1], planes[0], planes[3], planes[2]]), bit_depth)
    assert_same((reference, distorted), 100.0, device)
