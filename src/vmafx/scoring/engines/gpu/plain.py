"""The sums over frames that features follow from, in plain PyTorch: for devices that Triton does not compile for.

It takes many times the time and memory of the kernels. See definitions.py for the numbers.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from vmafx.scoring.engines.gpu.definitions import (
    BLUR,
    EYE_NOISE,
    HIGH,
    LOW,
    SAME_DIRECTION,
    SCALED_BITS,
    SCALES,
    WINDOWS,
    FixedPoint,
    LumaFormat,
    Shifts,
    inner,
    visibility,
    wavelet_shifts,
)

TINY = 1e-10
PEAK = 255.0

Detail = tuple[Tensor, Tensor, Tensor]  # horizontal, vertical and diagonal, in the fixed point of their scale


class _Statistics(NamedTuple):
    """A reference at one scale of VIF."""

    plane: Tensor
    bits: int
    mean: Tensor
    variance: Tensor


class PlainReference(NamedTuple):
    """What distorted frames are compared with."""

    scales: tuple[_Statistics, ...]
    details: tuple[Detail, ...]
    sums: Tensor


class _Decoupled(NamedTuple):
    """A band of the distorted picture: restored detail of the reference, and what is added to it."""

    restored: Tensor
    added: Tensor


class PlainSums:
    """Computes the sums of frames of one format, for models with one gain limit."""

    def __init__(self, frames: LumaFormat, gain_limit: float, device: torch.device) -> None:
        self._bits, self._gain_limit = frames.bits, gain_limit
        self._real = torch.float32 if device.type == "mps" else torch.float64  # Metal has no double precision

    def reference(self, luma: Tensor) -> PlainReference:
        """What distorted frames are compared with: luma of (frames, rows, columns)."""
        scales, sums = [], []
        for plane, bits, window in self._scaled(luma):
            mean = _mean(plane, window, bits)
            variance = self._variance(plane, plane, mean, mean, window, bits).clamp_min(0)
            information = torch.where(variance < EYE_NOISE, 1.0, torch.log2(1 + variance / EYE_NOISE))
            scales.append(_Statistics(plane, bits, mean, variance))
            sums.append(information.sum((1, 2)))
        details = self._details(luma)
        for fixed, detail in zip(SCALES, details, strict=True):
            sums += [_inner_sum(_cubed(self._as_real(band, fixed.rows), fixed)) for band in detail]
        return PlainReference(tuple(scales), details, torch.stack(sums, 1))

    def distorted(self, reference: PlainReference, luma: Tensor) -> Tensor:
        """The sums of distorted frames."""
        scaled = zip(reference.scales, self._scaled(luma), strict=True)
        sums = [self._information(shared, plane, window) for shared, (plane, _, window) in scaled]
        for scale, (one, other) in enumerate(zip(reference.details, self._details(luma), strict=True)):
            sums += self._kept_detail(one, other, scale)
        return torch.stack(sums, 1)

    def blurred(self, luma: Tensor, out: Tensor) -> None:
        columns = _shifted(_filtered(luma.to(torch.int64), BLUR, 1, repeat_last=True), self._bits)
        out.copy_(_shifted(_filtered(columns, BLUR, 2, repeat_last=True), SCALED_BITS))

    def difference(self, before: Tensor, after: Tensor) -> Tensor:
        """The sums of absolute differences of blurred frames."""
        return (after.to(torch.int64) - before.to(torch.int64)).abs().sum((1, 2))

    def _scaled(self, luma: Tensor) -> list[tuple[Tensor, int, Sequence[int]]]:
        """The planes at the scales of VIF, with their bits and windows."""
        scaled: list[tuple[Tensor, int, Sequence[int]]] = [(luma.to(torch.int64), self._bits, WINDOWS[0])]
        for window in WINDOWS[1:]:
            plane, bits, _ = scaled[-1]
            scaled.append((_halved(plane, window, bits), SCALED_BITS, window))
        return scaled

    def _as_real(self, fixed: Tensor, bits: int) -> Tensor:
        return fixed.to(self._real) / (1 << bits)

    def _variance(
        self, one: Tensor, other: Tensor, mean: Tensor, other_mean: Tensor, window: Sequence[int], bits: int
    ) -> Tensor:
        """The covariance of two planes around each pixel."""
        columns = _shifted(_filtered(one * other, window, 1), 2 * (bits - 8))
        products = _shifted(_filtered(columns, window, 2), 16)
        # The product of means has 64 bits without a sign: its halves are multiplied one by one.
        high, low = mean >> 16, mean & 0xFFFF
        product = high * other_mean + ((low * other_mean) >> 16)
        rest = (low * other_mean) & 0xFFFF
        return self._as_real(products - ((product + ((0x80000000 + rest) >> 16)) >> 16), 16)

    def _information(self, reference: _Statistics, plane: Tensor, window: Sequence[int]) -> Tensor:
        mean = _mean(plane, window, reference.bits)
        variance = self._variance(plane, plane, mean, mean, window, reference.bits).clamp_min(0)
        covariance = self._variance(reference.plane, plane, reference.mean, mean, window, reference.bits)
        nothing = (reference.variance < TINY) | (variance < TINY) | (covariance < 0)
        gain = torch.where(nothing, 0.0, covariance / (reference.variance + TINY))
        noise = (variance - gain * covariance).clamp_min(TINY)
        gain = gain.clamp_max(self._gain_limit)
        seen = torch.log2(1 + gain * gain * reference.variance / (noise + EYE_NOISE))
        kept = torch.where(reference.variance < EYE_NOISE, 1 - variance * 4 / PEAK**2, seen)
        return kept.sum((1, 2))

    def _details(self, luma: Tensor) -> tuple[Detail, ...]:
        details, plane = [], luma.to(torch.int64) - (128 << (self._bits - 8))
        for scale in range(len(SCALES)):
            plane, detail = _wavelets(plane, wavelet_shifts(scale, self._bits))
            details.append(detail)
        return tuple(details)

    def _kept_detail(self, reference: Detail, distorted: Detail, scale: int) -> list[Tensor]:
        fixed, (upright, diagonal) = SCALES[scale], visibility(scale)
        weights = (upright, upright, diagonal)
        same = self._same_direction(reference, distorted)
        parts = [self._decoupled(r, d, same, fixed.rows) for r, d in zip(reference, distorted, strict=True)]
        impairment = torch.stack(
            [(part.added * weight).abs() for part, weight in zip(parts, weights, strict=True)]
        ).sum(0)
        mask = (_neighbourhood(impairment) + impairment) / 30
        visible = (
            ((part.restored * weight).abs() - mask).clamp_min(0) for part, weight in zip(parts, weights, strict=True)
        )
        return [_inner_sum(torch.floor(x * x * (1 << fixed.kept) + 0.5) / (1 << fixed.kept) * x) for x in visible]

    def _same_direction(self, reference: Detail, distorted: Detail) -> Tensor:
        """Where edges keep their direction within one degree. In the precision of libvmaf: the last bit decides."""
        pairs = ((reference, distorted), (reference, reference), (distorted, distorted))
        dot, length_r, length_d = (
            (one[0] * other[0] + one[1] * other[1]).to(torch.float32).to(self._real) for one, other in pairs
        )
        return (dot >= 0) & (dot * dot >= SAME_DIRECTION * length_r * length_d)

    def _decoupled(self, reference: Tensor, distorted: Tensor, same: Tensor, bits: int) -> _Decoupled:
        between = torch.minimum(torch.maximum(distorted, reference.clamp_max(0)), reference.clamp_min(0))
        restored, whole = self._as_real(between, bits), self._as_real(distorted, bits)
        enhanced = restored * self._gain_limit
        enhanced = torch.where(enhanced.abs() >= whole.abs(), whole, enhanced)
        restored = torch.where(same & (between != 0), enhanced, restored)
        return _Decoupled(restored, whole - restored)


def _positions(first: int, count: int, step: int, length: int, device: torch.device, *, repeat_last: bool) -> Tensor:
    """Positions beyond an edge, folded back. The first sample is never repeated."""
    positions = torch.arange(first, first + count * step, step, device=device).abs()
    return torch.where(positions >= length, 2 * length - 2 + repeat_last - positions, positions)


def _filtered(plane: Tensor, taps: Sequence[int], axis: int, *, repeat_last: bool = False) -> Tensor:
    length, radius = plane.shape[axis], len(taps) // 2
    total = torch.zeros_like(plane)
    for offset, tap in enumerate(taps):
        taken = _positions(offset - radius, length, 1, length, plane.device, repeat_last=repeat_last)
        total += plane.index_select(axis, taken) * tap
    return total


def _shifted(total: Tensor, bits: int) -> Tensor:
    """Without so many of the lowest bits, rounded."""
    return (total + (1 << (bits - 1))) >> bits if bits else total


def _mean(plane: Tensor, window: Sequence[int], bits: int) -> Tensor:
    """With 24 fractional bits."""
    return _filtered(_shifted(_filtered(plane, window, 1), bits), window, 2)


def _halved(plane: Tensor, window: Sequence[int], bits: int) -> Tensor:
    """Every second pixel of the low-passed picture, with 8 fractional bits; an odd last row or column is dropped."""
    height, width = plane.shape[1] // 2 * 2, plane.shape[2] // 2 * 2
    return _shifted(_mean(plane, window, bits), 16)[:, :height:2, :width:2].contiguous()


def _wavelets(plane: Tensor, shifts: Shifts) -> tuple[Tensor, Detail]:
    """The picture at half size, and the detail that was split off."""
    low, high = (_shifted(_split(plane, taps, 1), shifts.columns) for taps in (LOW, HIGH))
    smaller, horizontal, vertical, diagonal = (
        _shifted(_split(half, taps, 2), shifts.rows)
        for half, taps in ((low, LOW), (high, LOW), (low, HIGH), (high, HIGH))
    )
    return smaller, (horizontal, vertical, diagonal)


def _split(plane: Tensor, taps: Sequence[int], axis: int) -> Tensor:
    """Filtered along an axis, starting one sample early; every second sample, with an odd last one."""
    length = plane.shape[axis]
    taken = (
        plane.index_select(axis, _positions(i - 1, (length + 1) // 2, 2, length, plane.device, repeat_last=True)) * tap
        for i, tap in enumerate(taps)
    )
    return sum(taken, torch.zeros((), dtype=plane.dtype, device=plane.device))


def _cubed(band: Tensor, fixed: FixedPoint) -> Tensor:
    """libvmaf rounds squares up."""
    square = band * band
    if fixed.there is not None:
        square = (torch.floor(square * (1 << fixed.there)) + 1) / (1 << fixed.there)
    return square * band.abs()


def _neighbourhood(plane: Tensor) -> Tensor:
    """The sums of three by three pixels."""
    for axis in (1, 2):
        length = plane.shape[axis]
        taken = (_positions(i, length, 1, length, plane.device, repeat_last=True) for i in (-1, 0, 1))
        plane = sum((plane.index_select(axis, positions) for positions in taken), torch.zeros_like(plane))
    return plane


def _inner_sum(plane: Tensor) -> Tensor:
    """The sum over each frame without its border."""
    height, width = plane.shape[1:]
    top, left = inner(height), inner(width)
    return plane[:, top : height - top, left : width - left].sum((1, 2))
