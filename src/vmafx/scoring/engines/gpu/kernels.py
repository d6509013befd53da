"""The Triton kernels: VIF, ADM and motion of batches of frames. See definitions.py for the numbers.

A kernel works on a tile of rows and columns of one frame; the third axis of the grid is the frame. Beyond the edges,
pictures are mirrored. Sums over a tile are stored one by one and added up in double precision afterwards, so that
results do not depend on the order in which tiles end.
"""

import triton
import triton.language as tl


@triton.jit
def _mirrored(position, length, repeat_last: tl.constexpr):
    """Positions beyond an edge, folded back. The first sample is never repeated."""
    folded = tl.where(position < 0, -position, position)
    folded = tl.where(folded >= length, 2 * length - 2 + repeat_last - folded, folded)
    return tl.minimum(tl.maximum(folded, 0), length - 1)  # of lanes outside the tile


@triton.jit
def _tile(height: tl.constexpr, width: tl.constexpr):
    """The rows and columns of this program's tile, and its frame."""
    y = tl.program_id(1) * height + tl.arange(0, height)
    x = tl.program_id(0) * width + tl.arange(0, width)
    return y, x, tl.program_id(2).to(tl.int64)


@triton.jit
def _store_sum(sums, row, values):
    """Stores the sum of a tile; `row` is the number of sums of a frame."""
    number = tl.program_id(2) * row + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    tl.store(sums + number, tl.sum(tl.sum(values, 1), 0))


@triton.jit
def _store_mirrored(plane, value, row, x, width, inside, radius: tl.constexpr, repeat_last: tl.constexpr):
    """Stores columns at their places, and those near an edge also where a mirror beyond it shows them."""
    tl.store(plane + (row + x[None, :]), value, inside)
    if tl.program_id(0) == 0:
        left = (x >= 1) & (x <= radius)
        tl.store(plane + (row - x[None, :]), value, inside & left[None, :])
    if (tl.program_id(0) + 1) * x.shape[0] >= width - radius:
        beyond = 2 * width - 2 + repeat_last - x
        right = (beyond >= width) & (beyond < width + radius)
        tl.store(plane + (row + beyond[None, :]), value, inside & right[None, :])


@triton.jit
def _high_bits(sums_of_high, sums_of_low, bits: tl.constexpr):
    """(high * 2**bits + low) / 2**bits, rounded."""
    if bits > 0:
        sums_of_high += (sums_of_low + (1 << (bits - 1))) >> bits
    return sums_of_high


@triton.jit
def filter_columns(
    plane, other, means, squares, products, height, width, stride,
    taps: tl.constexpr, bits: tl.constexpr, with_other: tl.constexpr, tile_y: tl.constexpr, tile_x: tl.constexpr,
):  # fmt: skip
    """Filters a plane, its squares and its products with the other plane over columns.

    The results have a mirrored border at the left and right, so that the filter over rows needs no mirror.
    """
    y, x, frame = _tile(tile_y, tile_x)
    radius: tl.constexpr = len(taps) // 2
    double: tl.constexpr = 2 * (bits - 8)
    plane += frame * height * width
    other += frame * height * width
    mean = tl.zeros((tile_y, tile_x), tl.uint32)
    square, square_low = mean, mean
    product, product_low = mean, mean
    for i in tl.static_range(len(taps)):
        row = _mirrored(y + (i - radius), height, False)
        offsets = row[:, None] * width + x[None, :]
        sample = tl.load(plane + offsets, x[None, :] < width, 0).to(tl.uint32)
        mean += sample * taps[i]
        if with_other:
            common = tl.load(other + offsets, x[None, :] < width, 0).to(tl.uint32) * sample
            product += (common >> double) * taps[i]
            if double > 0:
                product_low += (common & ((1 << double) - 1)) * taps[i]
        sample = sample * sample
        square += (sample >> double) * taps[i]
        if double > 0:
            square_low += (sample & ((1 << double) - 1)) * taps[i]
    inside = (y[:, None] < height) & (x[None, :] < width)
    first = frame * height * stride + radius
    row = y[:, None] * stride
    _store_mirrored(means + first, (mean + (1 << (bits - 1))) >> bits, row, x, width, inside, radius, False)
    _store_mirrored(squares + first, _high_bits(square, square_low, double), row, x, width, inside, radius, False)
    if with_other:
        _store_mirrored(
            products + first, _high_bits(product, product_low, double), row, x, width, inside, radius, False
        )


@triton.jit
def _four(values):
    """Four neighbouring columns, loaded together, as tensors of their own."""
    pairs = tl.reshape(values, (values.shape[0], values.shape[1], 2, 2))
    even, odd = tl.split(pairs)
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def _together(first, second, third, fourth):
    """The opposite of _four: columns one after the other."""
    joined = tl.join(tl.join(first, third), tl.join(second, fourth))
    return tl.reshape(joined, (first.shape[0], first.shape[1] * 4))


@triton.jit
def _tap(total, value, taps: tl.constexpr, i: tl.constexpr):
    if i >= 0 and i < len(taps):
        total += value * taps[i]
    return total


@triton.jit
def _add_taps(total, values, taps: tl.constexpr, first: tl.constexpr):
    """Adds four neighbouring columns to a sum; the first of them has the tap `first`."""
    total = _tap(total, values[0], taps, first)
    total = _tap(total, values[1], taps, first + 1)
    total = _tap(total, values[2], taps, first + 2)
    return _tap(total, values[3], taps, first + 3)


@triton.jit
def _rows_of(sums, place, taps: tl.constexpr):
    """Sums of 32 bits filtered over rows, without the lowest 16 bits, for four columns at each place."""
    h0 = tl.zeros((place.shape[0], place.shape[1]), tl.uint32)
    h1, h2, h3 = h0, h0, h0
    l0, l1, l2, l3 = h0, h0, h0, h0
    for k in tl.static_range((len(taps) + 6) // 4):
        values = tl.load(sums + (place + 4 * k)).to(tl.uint32, bitcast=True)
        high, low = _four(values >> 16), _four(values & 0xFFFF)
        h0, l0 = _add_taps(h0, high, taps, 4 * k), _add_taps(l0, low, taps, 4 * k)
        h1, l1 = _add_taps(h1, high, taps, 4 * k - 1), _add_taps(l1, low, taps, 4 * k - 1)
        h2, l2 = _add_taps(h2, high, taps, 4 * k - 2), _add_taps(l2, low, taps, 4 * k - 2)
        h3, l3 = _add_taps(h3, high, taps, 4 * k - 3), _add_taps(l3, low, taps, 4 * k - 3)
    h0 += (l0 + 0x8000) >> 16
    h1 += (l1 + 0x8000) >> 16
    h2 += (l2 + 0x8000) >> 16
    h3 += (l3 + 0x8000) >> 16
    return _together(h0, h1, h2, h3)


@triton.jit
def _means_of(means, place, taps: tl.constexpr):
    """Like _rows_of, for sums of 16 bits: none of the bits is left out."""
    m0 = tl.zeros((place.shape[0], place.shape[1]), tl.uint32)
    m1, m2, m3 = m0, m0, m0
    for k in tl.static_range((len(taps) + 6) // 4):
        values = _four(tl.load(means + (place + 4 * k)).to(tl.uint32))
        m0 = _add_taps(m0, values, taps, 4 * k)
        m1 = _add_taps(m1, values, taps, 4 * k - 1)
        m2 = _add_taps(m2, values, taps, 4 * k - 2)
        m3 = _add_taps(m3, values, taps, 4 * k - 3)
    return _together(m0, m1, m2, m3)


@triton.jit
def _fours(height, stride, tile_y: tl.constexpr, tile_x: tl.constexpr):
    """The places of this program's tile in a plane with a border, four columns together."""
    y = tl.minimum(tl.program_id(1) * tile_y + tl.arange(0, tile_y), height - 1)
    x = tl.program_id(0) * tile_x + 4 * tl.arange(0, tile_x // 4)
    row = tl.program_id(2).to(tl.int64) * height * stride + y * stride
    return row[:, None, None] + x[None, :, None] + tl.arange(0, 4)[None, None, :]


@triton.jit
def _product_of_means(one, other):
    return ((one.to(tl.uint64) * other.to(tl.uint64) + 0x80000000) >> 32).to(tl.uint32)


@triton.jit
def vif_reference(
    means, squares, mean_out, variance_out, sums, sums_row, height, width, stride,
    taps: tl.constexpr, tile_y: tl.constexpr, tile_x: tl.constexpr,
):  # fmt: skip
    """Mean and variance around each pixel of the reference, and the information that the eye gets from it."""
    y, x, frame = _tile(tile_y, tile_x)
    place = _fours(height, stride, tile_y, tile_x)
    mean = _means_of(means, place, taps)
    variance = (_rows_of(squares, place, taps) - _product_of_means(mean, mean)).to(tl.int32, bitcast=True)
    variance = tl.maximum(variance, 0)
    inside = (y[:, None] < height) & (x[None, :] < width)
    result = frame * height * width + y[:, None] * width + x[None, :]
    tl.store(mean_out + result, mean.to(tl.int32, bitcast=True), inside)
    tl.store(variance_out + result, variance, inside)
    value = variance.to(tl.float32) * (1.0 / 65536)
    seen = tl.where(value < 2.0, 1.0, tl.log2(1.0 + value / 2.0))
    _store_sum(sums, sums_row, tl.where(inside, seen, 0.0))


@triton.jit
def vif_distorted(
    means, squares, products, mean_in, variance_in, sums, sums_row, height, width, stride, gain_limit,
    taps: tl.constexpr, tile_y: tl.constexpr, tile_x: tl.constexpr,
):  # fmt: skip
    """The information that the eye gets from the distorted picture."""
    y, x, frame = _tile(tile_y, tile_x)
    place = _fours(height, stride, tile_y, tile_x)
    inside = (y[:, None] < height) & (x[None, :] < width)
    same = frame * height * width + y[:, None] * width + x[None, :]
    mean = _means_of(means, place, taps)
    variance = (_rows_of(squares, place, taps) - _product_of_means(mean, mean)).to(tl.int32, bitcast=True)
    of_reference = tl.load(mean_in + same, inside, 0).to(tl.uint32, bitcast=True)
    covariance = (_rows_of(products, place, taps) - _product_of_means(of_reference, mean)).to(tl.int32, bitcast=True)
    there = tl.load(variance_in + same, inside, 0)
    nothing = (there <= 0) | (variance <= 0) | (covariance < 0)
    reference = there.to(tl.float32) * (1.0 / 65536)
    distorted = tl.maximum(variance, 0).to(tl.float32) * (1.0 / 65536)
    common = covariance.to(tl.float32) * (1.0 / 65536)
    gain = tl.where(nothing, 0.0, common / (reference + 1e-10))
    noise = tl.maximum(distorted - gain * common, 1e-10)
    gain = tl.minimum(gain, gain_limit)
    seen = tl.log2(1.0 + gain * gain * reference / (noise + 2.0))
    kept = tl.where(reference < 2.0, 1.0 - distorted * (4.0 / 65025), seen)
    _store_sum(sums, sums_row, tl.where(inside, kept, 0.0))


@triton.jit
def smooth_columns(
    plane, smooth, height, width, rows, stride,
    taps: tl.constexpr, bits: tl.constexpr, step: tl.constexpr, repeat_last: tl.constexpr,
    tile_y: tl.constexpr, tile_x: tl.constexpr,
):  # fmt: skip
    """A plane filtered over columns, every `step`-th of its rows, with a mirrored border at the left and right."""
    y, x, frame = _tile(tile_y, tile_x)
    radius: tl.constexpr = len(taps) // 2
    plane += frame * height * width
    mean = tl.zeros((tile_y, tile_x), tl.uint32)
    for i in tl.static_range(len(taps)):
        row = _mirrored(step * y + (i - radius), height, repeat_last)
        mean += tl.load(plane + (row[:, None] * width + x[None, :]), x[None, :] < width, 0).to(tl.uint32) * taps[i]
    inside = (y[:, None] < rows) & (x[None, :] < width)
    smooth += frame * rows * stride + radius
    value = (mean + (1 << (bits - 1))) >> bits
    _store_mirrored(smooth, value, y[:, None] * stride, x, width, inside, radius, repeat_last)


@triton.jit
def smooth_rows(
    smooth, result, rows, columns, stride,
    taps: tl.constexpr, step: tl.constexpr, tile_y: tl.constexpr, tile_x: tl.constexpr,
):  # fmt: skip
    """What smooth_columns made, filtered over rows: every `step`-th of its columns."""
    y, x, frame = _tile(tile_y, tile_x)
    inside = (y[:, None] < rows) & (x[None, :] < columns)
    place = frame * rows * stride + y[:, None] * stride + step * x[None, :]
    total = tl.zeros((tile_y, tile_x), tl.uint32)
    for i in tl.static_range(len(taps)):
        total += tl.load(smooth + (place + i), inside, 0).to(tl.uint32) * taps[i]
    place = frame * rows * columns + y[:, None] * columns + x[None, :]
    tl.store(result + place, (total + 0x8000) >> 16, inside)


@triton.jit
def absolute_differences(before, after, sums, count, tile: tl.constexpr):
    """Sums of the absolute differences of two planes, a frame each, in tiles of one dimension."""
    offsets = tl.program_id(0) * tile + tl.arange(0, tile)
    inside = offsets < count
    place = tl.program_id(1).to(tl.int64) * count + offsets
    one, other = tl.load(before + place, inside, 0).to(tl.int32), tl.load(after + place, inside, 0).to(tl.int32)
    tl.store(sums + tl.program_id(1) * tl.num_programs(0) + tl.program_id(0), tl.sum(tl.abs(one - other), 0))


@triton.jit
def _shifted(total, bits: tl.constexpr):
    if bits > 0:
        total = (total + (1 << (bits - 1))) >> bits
    return total


@triton.jit
def wavelets(
    plane, smaller, horizontal, vertical, diagonal, height, width,
    low: tl.constexpr, high: tl.constexpr, level: tl.constexpr, shift_y: tl.constexpr, shift_x: tl.constexpr,
    wide_y: tl.constexpr, wide_x: tl.constexpr, tile_y: tl.constexpr, tile_x: tl.constexpr,
):  # fmt: skip
    """The picture at half size, and its detail. `level` is subtracted from samples; `wide` sums need 64 bits."""
    y, x, frame = _tile(tile_y, tile_x)
    sums_y: tl.constexpr = tl.int64 if wide_y else tl.int32
    sums_x: tl.constexpr = tl.int64 if wide_x else tl.int32
    plane += frame * height * width
    ll = tl.zeros((tile_y, tile_x), sums_x)
    hl, lh, hh = ll, ll, ll
    for j in tl.static_range(4):
        column = _mirrored(2 * x + (j - 1), width, True)
        below = tl.zeros((tile_y, tile_x), sums_y)
        above = below
        for i in tl.static_range(4):
            row = _mirrored(2 * y + (i - 1), height, True)
            sample = tl.load(plane + (row[:, None] * width + column[None, :])).to(tl.int32) - level
            sample = sample.to(sums_y)
            below += sample * low[i]
            above += sample * high[i]
        below, above = _shifted(below, shift_y).to(sums_x), _shifted(above, shift_y).to(sums_x)
        ll += below * low[j]
        hl += above * low[j]
        lh += below * high[j]
        hh += above * high[j]
    half_y, half_x = (height + 1) // 2, (width + 1) // 2
    inside = (y[:, None] < half_y) & (x[None, :] < half_x)
    place = frame * half_y * half_x + y[:, None] * half_x + x[None, :]
    tl.store(smaller + place, _shifted(ll, shift_x), inside)
    tl.store(horizontal + place, _shifted(hl, shift_x), inside)
    tl.store(vertical + place, _shifted(lh, shift_x), inside)
    tl.store(diagonal + place, _shifted(hh, shift_x), inside)


@triton.jit
def _loaded(band, inside):
    """Detail in fixed point, 0 outside."""
    return tl.load(band, inside, 0).to(tl.int32)


@triton.jit
def _cubed(band, bits: tl.constexpr, inside):
    """The cube of detail, 0 outside; libvmaf rounds its square up."""
    square = band * band
    if bits >= 0:
        square = (tl.floor(square * (1 << bits)) + 1.0) * (1.0 / (1 << bits))
    return tl.where(inside, square * tl.abs(band), 0.0)


@triton.jit
def adm_reference(
    horizontal, vertical, diagonal, sums_h, sums_v, sums_d, sums_row, height, width, top, left,
    scale: tl.constexpr, bits: tl.constexpr, tile_y: tl.constexpr, tile_x: tl.constexpr,
):  # fmt: skip
    """The detail of the reference without its border: sums of cubes."""
    y, x, frame = _tile(tile_y, tile_x)
    place = frame * height * width + y[:, None] * width + x[None, :]
    inside = (y[:, None] >= top) & (y[:, None] < height - top) & (x[None, :] >= left) & (x[None, :] < width - left)
    _store_sum(sums_h, sums_row, _cubed(_loaded(horizontal + place, inside).to(tl.float32) * scale, bits, inside))
    _store_sum(sums_v, sums_row, _cubed(_loaded(vertical + place, inside).to(tl.float32) * scale, bits, inside))
    _store_sum(sums_d, sums_row, _cubed(_loaded(diagonal + place, inside).to(tl.float32) * scale, bits, inside))


@triton.jit
def _same_direction(r_h, r_v, d_h, d_v, limit: tl.constexpr):
    """Where edges keep their direction within one degree. In the precision of libvmaf: there the last bit decides."""
    r_h, r_v, d_h, d_v = r_h.to(tl.int64), r_v.to(tl.int64), d_h.to(tl.int64), d_v.to(tl.int64)
    dot = (r_h * d_h + r_v * d_v).to(tl.float32).to(tl.float64)
    length_r = (r_h * r_h + r_v * r_v).to(tl.float32).to(tl.float64)
    length_d = (d_h * d_h + d_v * d_v).to(tl.float32).to(tl.float64)
    return (dot >= 0) & (dot * dot >= limit * length_r * length_d)


@triton.jit
def _decoupled(reference, distorted, same, gain_limit, scale: tl.constexpr):
    """Restored detail of the reference, and what is added to it."""
    between = tl.minimum(tl.maximum(distorted, tl.minimum(reference, 0)), tl.maximum(reference, 0))
    restored, added = between.to(tl.float32) * scale, (distorted - between).to(tl.float32) * scale
    whole = distorted.to(tl.float32) * scale
    enhanced = restored * gain_limit
    beyond = tl.abs(enhanced) >= tl.abs(whole)
    same = same & (between != 0)
    added = tl.where(same, tl.where(beyond, 0.0, whole - enhanced), added)
    restored = tl.where(same, tl.where(beyond, whole, enhanced), restored)
    return restored, added


@triton.jit
def adm_impairment(
    r_horizontal, r_vertical, r_diagonal, d_horizontal, d_vertical, d_diagonal, impairment, height, width, gain_limit,
    upright: tl.constexpr, diagonal: tl.constexpr, scale: tl.constexpr, limit: tl.constexpr,
    tile_y: tl.constexpr, tile_x: tl.constexpr,
):  # fmt: skip
    """The visible impairment that is added at each place, over the three bands."""
    y, x, frame = _tile(tile_y, tile_x)
    place = frame * height * width + y[:, None] * width + x[None, :]
    inside = (y[:, None] < height) & (x[None, :] < width)
    r_h, d_h = _loaded(r_horizontal + place, inside), _loaded(d_horizontal + place, inside)
    r_v, d_v = _loaded(r_vertical + place, inside), _loaded(d_vertical + place, inside)
    r_d, d_d = _loaded(r_diagonal + place, inside), _loaded(d_diagonal + place, inside)
    same = _same_direction(r_h, r_v, d_h, d_v, limit)
    added_h = _decoupled(r_h, d_h, same, gain_limit, scale)[1]
    added_v = _decoupled(r_v, d_v, same, gain_limit, scale)[1]
    added_d = _decoupled(r_d, d_d, same, gain_limit, scale)[1]
    total = (tl.abs(added_h) + tl.abs(added_v)) * upright + tl.abs(added_d) * diagonal
    tl.store(impairment + place, total, inside)


@triton.jit
def _kept(restored, mask, weight: tl.constexpr, bits: tl.constexpr):
    visible = tl.maximum(tl.abs(restored) * weight - mask, 0.0)
    return tl.floor(visible * visible * (1 << bits) + 0.5) * (1.0 / (1 << bits)) * visible


@triton.jit
def adm_kept(
    r_horizontal, r_vertical, r_diagonal, d_horizontal, d_vertical, d_diagonal, impairment,
    sums_h, sums_v, sums_d, sums_row, height, width, top, left, gain_limit,
    upright: tl.constexpr, diagonal: tl.constexpr, scale: tl.constexpr, limit: tl.constexpr, bits: tl.constexpr,
    tile_y: tl.constexpr, tile_x: tl.constexpr,
):  # fmt: skip
    """The restored detail that impairment around it does not mask: sums of cubes, without the border."""
    y, x, frame = _tile(tile_y, tile_x)
    plane = frame * height * width
    place = plane + y[:, None] * width + x[None, :]
    inside = (y[:, None] >= top) & (y[:, None] < height - top) & (x[None, :] >= left) & (x[None, :] < width - left)
    r_h, d_h = _loaded(r_horizontal + place, inside), _loaded(d_horizontal + place, inside)
    r_v, d_v = _loaded(r_vertical + place, inside), _loaded(d_vertical + place, inside)
    r_d, d_d = _loaded(r_diagonal + place, inside), _loaded(d_diagonal + place, inside)
    same = _same_direction(r_h, r_v, d_h, d_v, limit)
    mask = tl.load(impairment + place, inside, 0)
    for i in tl.static_range(-1, 2):
        for j in tl.static_range(-1, 2):
            row, column = _mirrored(y + i, height, True), _mirrored(x + j, width, True)
            mask += tl.load(impairment + (plane + row[:, None] * width + column[None, :]))
    mask = mask * (1.0 / 30)
    kept_h = _kept(_decoupled(r_h, d_h, same, gain_limit, scale)[0], mask, upright, bits)
    kept_v = _kept(_decoupled(r_v, d_v, same, gain_limit, scale)[0], mask, upright, bits)
    kept_d = _kept(_decoupled(r_d, d_d, same, gain_limit, scale)[0], mask, diagonal, bits)
    _store_sum(sums_h, sums_row, tl.where(inside, kept_h, 0.0))
    _store_sum(sums_v, sums_row, tl.where(inside, kept_v, 0.0))
    _store_sum(sums_d, sums_row, tl.where(inside, kept_d, 0.0))


@triton.jit
def add_up(sums, first, totals, row, tile: tl.constexpr):
    """Adds up the sums of tiles: one total for each of the ranges that begin at `first`, for each frame."""
    part, parts = tl.program_id(0), tl.num_programs(0)
    frame = tl.program_id(1).to(tl.int64)
    begin, end = tl.load(first + part), tl.load(first + part + 1)
    total = tl.zeros((tile,), tl.float64)
    for start in range(begin, end, tile):
        offsets = start + tl.arange(0, tile)
        total += tl.load(sums + frame * row + offsets, offsets < end, 0.0).to(tl.float64)
    tl.store(totals + frame * parts + part, tl.sum(total, 0))
