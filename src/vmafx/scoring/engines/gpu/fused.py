"""The sums over frames that features follow from, by the Triton kernels."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vmafx.scoring.engines.gpu import kernels
from vmafx.scoring.engines.gpu.definitions import (
    BANDS,
    BLUR,
    HIGH,
    LOW,
    SAME_DIRECTION,
    SCALED_BITS,
    SCALES,
    SUMS,
    WINDOWS,
    LumaFormat,
    inner,
    visibility,
    wavelet_shifts,
)

Tile = dict[str, int]
TILE: Tile = {"tile_y": 4, "tile_x": 128}
FLAT_TILE = 4096
ALIGNMENT = 32  # samples: rows with a border begin at multiples of this

Detail = tuple[Tensor, Tensor, Tensor]  # horizontal, vertical and diagonal


class _Scale(NamedTuple):
    """A reference at one scale of VIF."""

    plane: Tensor
    bits: int
    mean: Tensor
    variance: Tensor


class FusedReference(NamedTuple):
    """What distorted frames are compared with."""

    scales: tuple[_Scale, ...]
    details: tuple[Detail, ...]
    sums: Tensor


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Tensor | float, **constants: Any) -> None:
    kernel[grid](*arguments, **constants)


class _TileLayout:
    """Where the sums of the tiles of a frame are stored, one kernel's after the other's."""

    def __init__(self, height: int, width: int, tile: Tile, device: torch.device) -> None:
        counts = [_tiles(height >> scale, width >> scale, tile) for scale in range(len(WINDOWS))]
        for _ in range(len(SCALES)):
            height, width = (height + 1) // 2, (width + 1) // 2
            counts += [_tiles(height, width, tile)] * BANDS
        self.first = [0, *accumulate(counts)]
        self.row = self.first[-1]
        self.on_device = torch.tensor(self.first, dtype=torch.int32).to(device)


class _TileSums:
    """The sums of all tiles of a batch, which are added up in the end."""

    def __init__(self, frames: int, layout: _TileLayout) -> None:
        self._layout, self.row = layout, layout.row
        self._sums = torch.empty((frames, self.row), dtype=torch.float32, device=layout.on_device.device)

    def of(self, number: int) -> Tensor:
        return self._sums[:, self._layout.first[number] :]

    def bands(self, scale: int) -> list[Tensor]:
        return [self.of(len(WINDOWS) + BANDS * scale + band) for band in range(BANDS)]

    def total(self) -> Tensor:
        frames = len(self._sums)
        totals = torch.empty((frames, SUMS), dtype=torch.float64, device=self._sums.device)
        launch(kernels.add_up, (SUMS, frames), self._sums, self._layout.on_device, totals, self.row, tile=1024)
        return totals


class FusedSums:
    """Computes the sums of frames of one format, for models with one gain limit."""

    def __init__(self, frames: LumaFormat, gain_limit: float, device: torch.device, tile: Tile = TILE) -> None:
        self._bits, self._gain_limit, self._tile = frames.bits, gain_limit, tile
        self._layout = _TileLayout(frames.height, frames.width, tile, device)

    def reference(self, luma: Tensor) -> FusedReference:
        """What distorted frames are compared with: luma of (frames, rows, columns)."""
        sums, scales = _TileSums(len(luma), self._layout), []
        for scale, (plane, bits, window) in enumerate(self._scaled(luma)):
            _, height, width = plane.shape
            means, squares, _ = self._columns(plane, window, bits)
            mean = torch.empty(plane.shape, dtype=torch.int32, device=plane.device)
            variance = torch.empty_like(mean)
            launch(
                kernels.vif_reference, self._grid(plane.shape), means, squares, mean, variance, sums.of(scale),
                sums.row, height, width, means.shape[2], taps=window, **self._tile,
            )  # fmt: skip
            scales.append(_Scale(plane, bits, mean, variance))
        details = self._details(luma)
        for scale, detail in enumerate(details):
            shape, fixed = detail[0].shape, SCALES[scale]
            _, height, width = shape
            launch(
                kernels.adm_reference, self._grid(shape), *detail, *sums.bands(scale), sums.row, height, width,
                inner(height), inner(width), scale=2.0**-fixed.rows, bits=-1 if fixed.there is None else fixed.there,
                **self._tile,
            )  # fmt: skip
        return FusedReference(tuple(scales), details, sums.total())

    def distorted(self, reference: FusedReference, luma: Tensor) -> Tensor:
        """The sums of distorted frames."""
        sums = _TileSums(len(luma), self._layout)
        for scale, (plane, bits, window) in enumerate(self._scaled(luma)):
            shared = reference.scales[scale]
            _, height, width = plane.shape
            means, squares, products = self._columns(plane, window, bits, shared.plane)
            launch(
                kernels.vif_distorted, self._grid(plane.shape), means, squares, products, shared.mean, shared.variance,
                sums.of(scale), sums.row, height, width, means.shape[2], self._gain_limit, taps=window, **self._tile,
            )  # fmt: skip
        for scale, (one, other) in enumerate(zip(reference.details, self._details(luma), strict=True)):
            self._kept_detail(one, other, scale, sums)
        return sums.total()

    def blurred(self, luma: Tensor, out: Tensor) -> None:
        self._smooth(luma, out, BLUR, self._bits, step=1, repeat_last=True)

    def difference(self, before: Tensor, after: Tensor) -> Tensor:
        """The sums of absolute differences of blurred frames."""
        count, size = len(after), after[0].numel()
        grid = (_divided_up(size, FLAT_TILE), count)
        sums = torch.empty((count, grid[0]), dtype=torch.int32, device=after.device)
        launch(kernels.absolute_differences, grid, before, after, sums, size, tile=FLAT_TILE)
        return sums.sum(1, dtype=torch.int64)

    def _grid(self, shape: Sequence[int]) -> tuple[int, int, int]:
        frames, height, width = shape
        return _divided_up(width, self._tile["tile_x"]), _divided_up(height, self._tile["tile_y"]), frames

    def _stride(self, width: int) -> int:
        """Columns of a plane with a border: the last tile is in it, and what its filter reads."""
        return _divided_up(width, self._tile["tile_x"]) * self._tile["tile_x"] + ALIGNMENT

    def _scaled(self, luma: Tensor) -> list[tuple[Tensor, int, Sequence[int]]]:
        """The planes at the scales of VIF, with their bits and windows."""
        scaled: list[tuple[Tensor, int, Sequence[int]]] = [(luma, self._bits, WINDOWS[0])]
        for window in WINDOWS[1:]:
            plane, bits, _ = scaled[-1]
            count, height, width = plane.shape
            smaller = torch.empty((count, height // 2, width // 2), dtype=torch.uint16, device=plane.device)
            self._smooth(plane, smaller, window, bits, step=2, repeat_last=False)
            scaled.append((smaller, SCALED_BITS, window))
        return scaled

    def _smooth(
        self, plane: Tensor, out: Tensor, window: Sequence[int], bits: int, *, step: int, repeat_last: bool
    ) -> None:
        """The low-passed picture with 16 bits, every `step`-th pixel of it."""
        count, height, width = plane.shape
        _, rows, columns = out.shape
        stride = self._stride(width)
        smooth = torch.empty((count, rows, stride), dtype=torch.uint16, device=plane.device)
        launch(
            kernels.smooth_columns, self._grid((count, rows, width)), plane, smooth, height, width, rows, stride,
            taps=window, bits=bits, step=step, repeat_last=repeat_last, **self._tile,
        )  # fmt: skip
        launch(
            kernels.smooth_rows, self._grid(out.shape), smooth, out, rows, columns, stride,
            taps=window, step=step, **self._tile,
        )  # fmt: skip

    def _columns(
        self, plane: Tensor, window: Sequence[int], bits: int, other: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Means, squares, and products with another plane, filtered over columns."""
        count, height, width = plane.shape
        shape = (count, height, self._stride(width))
        means = torch.empty(shape, dtype=torch.uint16, device=plane.device)
        squares = torch.empty(shape, dtype=torch.int32, device=plane.device)
        products = squares if other is None else torch.empty_like(squares)
        launch(
            kernels.filter_columns, self._grid(plane.shape), plane, plane if other is None else other, means, squares,
            products, height, width, shape[2], taps=window, bits=bits, with_other=other is not None, **self._tile,
        )  # fmt: skip
        return means, squares, products

    def _details(self, luma: Tensor) -> tuple[Detail, ...]:
        details, plane = [], luma
        for scale in range(len(SCALES)):
            count, height, width = plane.shape
            shape, shifts = (count, (height + 1) // 2, (width + 1) // 2), wavelet_shifts(scale, self._bits)
            smaller = torch.empty(shape, dtype=torch.int32, device=luma.device)
            kind = torch.int16 if scale == 0 else torch.int32
            horizontal, vertical, diagonal = (torch.empty(shape, dtype=kind, device=luma.device) for _ in range(BANDS))
            launch(
                kernels.wavelets, self._grid(shape), plane, smaller, horizontal, vertical, diagonal, height, width,
                low=LOW, high=HIGH, level=128 << (self._bits - 8) if scale == 0 else 0,
                shift_y=shifts.columns, shift_x=shifts.rows, wide_y=scale > 1, wide_x=scale > 0, **self._tile,
            )  # fmt: skip
            details.append((horizontal, vertical, diagonal))
            plane = smaller
        return tuple(details)

    def _kept_detail(self, reference: Detail, distorted: Detail, scale: int, sums: _TileSums) -> None:
        shape, fixed = reference[0].shape, SCALES[scale]
        _, height, width = shape
        upright, diagonal = visibility(scale)
        numbers = {"upright": upright, "diagonal": diagonal, "scale": 2.0**-fixed.rows, "limit": SAME_DIRECTION}
        impairment = torch.empty(shape, dtype=torch.float32, device=reference[0].device)
        launch(
            kernels.adm_impairment, self._grid(shape), *reference, *distorted, impairment, height, width,
            self._gain_limit, **numbers, **self._tile,
        )  # fmt: skip
        launch(
            kernels.adm_kept, self._grid(shape), *reference, *distorted, impairment, *sums.bands(scale), sums.row,
            height, width, inner(height), inner(width), self._gain_limit, **numbers, bits=fixed.kept, **self._tile,
        )  # fmt: skip


def _tiles(height: int, width: int, tile: Tile) -> int:
    return _divided_up(width, tile["tile_x"]) * _divided_up(height, tile["tile_y"])


def _divided_up(number: int, divisor: int) -> int:
    return -(-number // divisor)
