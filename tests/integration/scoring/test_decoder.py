"""The frames that decoders emit, byte for byte those of the ffmpeg program with the same filters."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.oracle.planes import Luma
from tests.support.decoding import converted, decoded, decoder_of, emitted, read_all
from tests.support.video import ffmpeg, scene
from vmafx.api.scoring import RawFormat
from vmafx.scoring.decoder.messages import Conversion, DecodedClip
from vmafx.scoring.errors import BadInput
from vmafx.scoring.request import ClipLimits, Source

WIDTH, HEIGHT, FRAMES = 128, 96, 10
FRAME = WIDTH * HEIGHT * 3 // 2  # bytes
SAME = Conversion(width=WIDTH, height=HEIGHT, pixel_format="yuv420p")
H264 = ("-c:v", "libx264", "-pix_fmt", "yuv420p", "-bf", "3")
LOSSLESS = ("-c:v", "ffv1")
Make = Callable[..., Path]


def to(**changes: object) -> Conversion:
    return msgspec.structs.replace(SAME, **changes)


def from_rgb(**changes: object) -> Conversion:
    return to(**{"from_full_range": True, "matrix": "bt709", **changes})


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes a colourful moving clip, once per set of options."""
    folder, made = tmp_path_factory.mktemp("clips"), dict[tuple[object, ...], Path]()

    def make_clip(ending: str, *options: str, size: str = f"{WIDTH}x{HEIGHT}", frames: int = FRAMES) -> Path:
        key = (ending, *options, size, frames)
        if key not in made:
            made[key] = folder / f"{len(made)}{ending}"
            ffmpeg("-f", "lavfi", "-i", f"testsrc2=s={size}:r=25", "-frames:v", str(frames), *options, made[key])
        return made[key]

    return make_clip


async def assert_equal(clip: Path, *conversions: Conversion, frames: int = FRAMES) -> None:
    for conversion in conversions:
        content, answer = await decoded(clip, conversion)
        expected = converted(clip, conversion)
        assert content == expected, (len(content), len(expected), conversion)
        assert answer == DecodedClip(frames)
        assert len(content) % frames == 0


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"width": 200, "height": 150},
        {"width": 64, "height": 48},
        {"width": 101, "height": 67},
        {"pixel_format": "yuv420p10le"},
        {"pixel_format": "yuv420p16le"},
        {"pixel_format": "yuv422p"},
        {"pixel_format": "yuv444p10le", "width": 256, "height": 192},
    ],
    ids=str,
)
async def test_size_bit_depth_and_chroma_are_converted(changes: dict[str, object], make: Make) -> None:
    await assert_equal(make(".mp4", *H264), to(**changes))


YUV_CLIPS = {
    "H.265, 10 bit": (".mkv", "-c:v", "libx265", "-pix_fmt", "yuv420p10le", "-x265-params", "log-level=none"),
    "9 bit": (".mkv", "-c:v", "ffv1", "-pix_fmt", "yuv420p9le"),
    "4:2:2": (".mkv", "-c:v", "ffv1", "-pix_fmt", "yuv422p"),
    "4:2:2, 10 bit": (".mov", "-c:v", "v210", "-pix_fmt", "yuv422p10le"),
    "4:4:4, 12 bit": (".mkv", "-c:v", "ffv1", "-pix_fmt", "yuv444p12le"),
    "4:4:0": (".mkv", "-c:v", "ffv1", "-pix_fmt", "yuv440p"),
    "4:1:1": (".mkv", "-c:v", "ffv1", "-pix_fmt", "yuv411p"),
    "4:1:0": (".mkv", "-c:v", "ffv1", "-pix_fmt", "yuv410p"),
    "alpha": (".mov", "-c:v", "prores_ks", "-profile:v", "4444", "-pix_fmt", "yuva444p10le"),
    "packed": (".avi", "-c:v", "rawvideo", "-pix_fmt", "uyvy422"),
    "semi-planar, 10 bit": (".nut", "-c:v", "rawvideo", "-pix_fmt", "p010le"),
    "big-endian": (".nut", "-c:v", "rawvideo", "-pix_fmt", "yuv420p10be"),
}


@pytest.mark.parametrize("kind", YUV_CLIPS)
async def test_kinds_of_yuv_are_converted(kind: str, make: Make) -> None:
    await assert_equal(make(*YUV_CLIPS[kind]), SAME, to(pixel_format="yuv444p10le", width=192, height=144))


RGB_CLIPS = {
    "bgr0": (".mkv", "-c:v", "ffv1", "-pix_fmt", "bgr0"),
    "with alpha": (".mkv", "-c:v", "ffv1", "-pix_fmt", "bgra"),
    "planar": (".avi", "-c:v", "utvideo", "-pix_fmt", "gbrp"),
    "planar, 16 bit": (".mkv", "-c:v", "ffv1", "-pix_fmt", "gbrp16le"),
    "QuickTime animation": (".mov", "-c:v", "qtrle"),
    "GIF": (".gif",),
}


@pytest.mark.parametrize("kind", RGB_CLIPS)
async def test_rgb_is_converted_with_the_matrix(kind: str, make: Make) -> None:
    conversions = from_rgb(), from_rgb(matrix="bt601", width=192, height=144, pixel_format="yuv444p10le")
    await assert_equal(make(*RGB_CLIPS[kind]), *conversions)


async def test_a_palette_is_converted_with_the_matrix(make: Make) -> None:
    """The ffmpeg program of version 7 always takes BT.601 for palettes, FFmpeg 8 the matrix that it was given."""
    clip = make(".mov", "-c:v", "png", "-pix_fmt", "pal8")
    await assert_equal(clip, from_rgb(matrix="bt601", pixel_format="yuv444p"))
    wanted = from_rgb(pixel_format="yuv444p")
    same_colours = converted(make(".mkv", "-vf", "format=pal8,format=bgra", *LOSSLESS), wanted)
    content, _ = await decoded(clip, wanted)
    assert np.abs(levels(content) - levels(same_colours)).max() <= 1


async def test_rgb_without_padding_is_rounded_by_at_most_one_level(make: Make) -> None:
    """FFmpeg 8 rounds bgr24 differently. In AVI, its rows are stored from the bottom to the top."""
    bottom_up, top_down = (make(ending, "-c:v", "rawvideo", "-pix_fmt", "bgr24") for ending in (".avi", ".nut"))
    await assert_equal(bottom_up, from_rgb(pixel_format="yuv444p"), from_rgb(width=200, height=150))
    content, _ = await decoded(bottom_up, from_rgb())
    assert content == (await decoded(top_down, from_rgb()))[0]
    assert np.abs(levels(content) - levels(converted(bottom_up, from_rgb()))).max() <= 1


def levels(content: bytes, depth: int = 8) -> Luma:
    return np.frombuffer(content, "u1" if depth == 8 else "<u2").astype(int)


GREY_CLIPS = {
    "8 bit": (".mkv", "-c:v", "ffv1", "-pix_fmt", "gray"),
    "10 bit": (".mkv", "-c:v", "ffv1", "-pix_fmt", "gray10le"),
    "alpha": (".mov", "-c:v", "png", "-pix_fmt", "ya8"),
}


@pytest.mark.parametrize("kind", GREY_CLIPS)
async def test_grey_of_full_range_keeps_its_levels(kind: str, make: Make) -> None:
    large = to(full_range=True, from_full_range=True, width=200, height=150, pixel_format="yuv420p10le")
    await assert_equal(make(*GREY_CLIPS[kind]), to(full_range=True, from_full_range=True), large)


@pytest.mark.parametrize("pixels", ["yuv420p", "yuv420p10le"])
async def test_grey_of_limited_range_is_converted_like_the_luma_of_colour(pixels: str, make: Make) -> None:
    """The ffmpeg program takes any grey as full range."""
    grey = make(".mkv", "-vf", f"format={pixels},extractplanes=y", "-color_range", "tv", *LOSSLESS)
    colour = make(".mkv", "-pix_fmt", pixels, *LOSSLESS)
    for wanted in (SAME, to(full_range=True, width=200, height=150, pixel_format="yuv420p10le")):
        luma = wanted.width * wanted.height * (2 if wanted.pixel_format.endswith("10le") else 1)
        assert (await decoded(grey, wanted))[0][:luma] == (await decoded(colour, wanted))[0][:luma]


@pytest.mark.parametrize("depth", [8, 10])
@pytest.mark.parametrize("full_range", [False, True])
async def test_ranges_are_converted_to_within_a_level(full_range: bool, depth: int, make: Make) -> None:
    """FFmpeg 8 computes it in another way than the ffmpeg program of version 7, so their bytes differ."""
    name = "yuv444p" if depth == 8 else "yuv444p10le"
    of = ("limited", "full") if full_range else ("full", "limited")
    options = ("-vf", f"scale=out_range={of[0]}", "-color_range", "tv" if full_range else "pc", "-pix_fmt", name)
    clip = make(".mkv", *options, *LOSSLESS)
    kept = to(full_range=not full_range, from_full_range=not full_range, pixel_format=name)
    wanted = to(full_range=full_range, from_full_range=not full_range, pixel_format=name)
    await assert_equal(clip, kept)
    unit, top = 1 << (depth - 8), (1 << depth) - 1
    old = levels(converted(clip, kept), depth).reshape(FRAMES, 3, -1)
    new = levels((await decoded(clip, wanted))[0], depth).reshape(FRAMES, 3, -1)
    for plane, (span, black) in enumerate(((219, 16), (224, 128), (224, 128))):
        low, zero = black * unit, 0 if plane == 0 else 128 * unit
        scale = top / (span * unit)
        exact = (old[:, plane] - low) * scale + zero if full_range else (old[:, plane] - zero) / scale + low
        assert np.abs(np.clip(exact, 0, top) - new[:, plane]).max() < 1.5


@pytest.mark.parametrize("pixels", ["yuv420p", "yuv444p", "yuv420p10le"])
async def test_odd_sizes_and_padded_rows_are_emitted_without_padding(pixels: str, make: Make) -> None:
    clip = make(".mkv", "-pix_fmt", pixels, *LOSSLESS, size="101x67")
    await assert_equal(clip, to(width=101, height=67, pixel_format=pixels), to(width=150, height=101))


async def test_rows_and_columns_that_h264_crops_are_not_emitted(make: Make) -> None:
    """1080 rows are coded as 1088."""
    large = make(".mp4", *H264, "-preset", "ultrafast", size="1920x1080", frames=2)
    await assert_equal(large, to(width=1920, height=1080), frames=2)
    odd = make(".mp4", "-c:v", "libx264", "-pix_fmt", "yuv444p", size="101x67")
    await assert_equal(odd, to(width=101, height=67, pixel_format="yuv444p"))


TURNS = {
    "90": ("-display_rotation", "90"),
    "180": ("-display_rotation", "180"),
    "270": ("-display_rotation", "270"),
    "mirrored": ("-display_hflip",),
    "upside down": ("-display_vflip",),
    "90, mirrored": ("-display_rotation", "90", "-display_hflip"),
    "270, mirrored": ("-display_rotation", "270", "-display_hflip"),
}


@pytest.mark.parametrize("turn", TURNS)
async def test_rotated_and_mirrored_frames_are_turned(turn: str, make: Make, tmp_path: Path) -> None:
    turned = tmp_path / "turned.mp4"
    ffmpeg(*TURNS[turn], "-i", make(".mp4", *H264, size="102x68"), "-c", "copy", turned)
    width, height = (68, 102) if turn.startswith(("90", "270")) else (102, 68)
    await assert_equal(turned, to(width=width, height=height), to(width=96, height=80, pixel_format="yuv420p10le"))


async def test_other_rotations_are_ignored(make: Make, tmp_path: Path) -> None:
    """The ffmpeg program would turn the frame and paint the corners black, which is no use for a comparison."""
    flat, turned = make(".mp4", *H264), tmp_path / "turned.mp4"
    ffmpeg("-display_rotation", "30", "-i", flat, "-c", "copy", turned)
    assert (await decoded(turned, SAME))[0] == converted(flat, SAME)


async def test_interlaced_frames_are_scaled_as_frames(make: Make) -> None:
    fields = ("-vf", "tinterlace=interleave_top,setfield=tff", "-flags", "+ildct+ilme")
    clip = make(".mkv", *fields, "-c:v", "mpeg2video", "-pix_fmt", "yuv420p", frames=FRAMES)
    await assert_equal(clip, SAME, to(width=200, height=150), to(pixel_format="yuv422p"))


@pytest.mark.parametrize("rate", ["25", "50", "30000/1001", "12", "3"])
async def test_a_constant_frame_rate_is_converted(rate: str, make: Make) -> None:
    clip = make(".mp4", *H264)
    for own_rate in ("25", None):
        wanted = to(rate=rate, own_rate=own_rate)
        content, answer = await decoded(clip, wanted)
        assert content == converted(clip, wanted)
        assert answer.frames == len(content) // FRAME


UNEVEN = "settb=1/1000,setpts='(N+mod(N*N,3)/4)/25/TB'"
TIMED_CLIPS = {
    "variable, Matroska without durations": (
        *(".mkv", "-vf", UNEVEN, "-fps_mode", "vfr", "-enc_time_base", "1:1000"),
        *H264,
    ),
    "Flash, without durations": (".flv", "-c:v", "flv", "-pix_fmt", "yuv420p"),
    "GIF with a gap": (".gif", "-vf", "setpts='(N+gte(N,5)*7)/25/TB'", "-fps_mode", "vfr"),
    "programme stream": (".mpg", "-c:v", "mpeg2video", "-bf", "2"),
    "VP8 with hidden frames": (".webm", "-c:v", "libvpx", "-auto-alt-ref", "1", "-lag-in-frames", "16", "-b:v", "200k"),
}


@pytest.mark.parametrize("kind", TIMED_CLIPS)
async def test_frames_are_repeated_and_dropped_by_their_timestamps(kind: str, make: Make) -> None:
    """The last frame too has a duration, even if the container states none."""
    clip = make(*TIMED_CLIPS[kind], frames=25)
    for rate in ("50", "24000/1001"):
        wanted = from_rgb(rate=rate) if "GIF" in kind else to(rate=rate)
        content, _ = await decoded(clip, wanted)
        assert content == converted(clip, wanted)


@pytest.mark.parametrize("ending", [".mp4", ".mkv", ".ts"])
async def test_a_clip_cut_without_encoding_starts_where_players_start_it(
    ending: str, make: Make, tmp_path: Path
) -> None:
    """In MP4 by an edit list, elsewhere by timestamps, which are negative at first."""
    cut = tmp_path / f"cut{ending}"
    ffmpeg("-ss", "0.3", "-i", make(".mp4", *H264, "-g", "10", frames=30), "-c", "copy", cut)
    for wanted in (SAME, to(rate="50")):
        content, answer = await decoded(cut, wanted)
        assert content == converted(cut, wanted)
        assert answer.errors == 0


async def test_a_stream_that_starts_within_an_open_group_of_pictures(make: Make, tmp_path: Path) -> None:
    parameters = "open-gop=1:keyint=10:min-keyint=10:scenecut=0:bframes=3"
    stream = make(".264", *H264, "-x264-params", parameters, frames=30).read_bytes()
    starts = [found.start() for found in re.finditer(b"\0\0\0\1\x67", stream)]
    late = tmp_path / "late.264"
    late.write_bytes(stream[starts[1] :])
    assert (await decoded(late, SAME))[0] == converted(late, SAME)


async def test_raw_video_is_emitted_as_it_is(tmp_path: Path) -> None:
    clip = scene()
    path = clip.write(tmp_path / "clip.yuv")
    raw = RawFormat(width=256, height=144, pixelFormat="yuv420p")
    content, answer = await decoded(Source(str(path), raw), to(width=256, height=144))
    assert (content, answer) == (path.read_bytes(), DecodedClip(8))


@pytest.mark.parametrize("wanted", [SAME, to(rate="50", own_rate="25")], ids=["same", "50 fps"])
async def test_a_window_has_the_frames_of_the_whole_clip(wanted: Conversion, make: Make) -> None:
    clip = make(".mp4", *H264)
    whole = converted(clip, wanted)
    count = 2 * FRAMES if wanted.rate else FRAMES
    size = len(whole) // count
    for first, end in ((0, 1), (3, 7), (FRAMES - 1, None), (4, 100), (50, None)):
        content, answer = await decoded(clip, wanted, first=first, end=end)
        assert content == whole[first * size : None if end is None else end * size]
        assert answer.errors == 0
        assert answer.frames == (count if end is None else min(end, count)) or wanted.rate


@pytest.mark.parametrize("threads", [2, 16])
async def test_several_threads_emit_the_same_frames(threads: int, make: Make) -> None:
    clip = make(".mp4", *H264, frames=30)
    assert (await decoded(clip, SAME, threads=threads))[0] == converted(clip, SAME)


async def test_all_outputs_get_the_same_frames(make: Make) -> None:
    clip = make(".mp4", *H264, frames=60)
    async with decoder_of(clip) as decoder:
        await decoder.inspect(outputs=5)
        async with decoder.decode(SAME, 3, threads=2) as decoding:
            contents = await asyncio.gather(*map(read_all, decoding.outputs))
            assert await decoding.finished() == DecodedClip(60)
    assert contents == [converted(clip, SAME)] * 3


async def test_a_reader_that_closes_does_not_disturb_the_others(make: Make) -> None:
    """Nor does one that never reads: the others wait for it only until it closes."""
    large = to(width=640, height=480)  # the frames do not fit into a pipe
    clip = make(".mp4", *H264, frames=60)
    async with decoder_of(clip) as decoder, decoder.decode(large, 4, threads=1) as decoding:
        reader, early, idle, at_once = decoding.outputs
        at_once.close()
        assert len(await asyncio.to_thread(early.read, 100_000)) > 0
        early.close()
        content = await asyncio.to_thread(reader.read, 500_000)
        idle.close()
        assert content + await read_all(reader) == converted(clip, large)
        assert await decoding.finished() == DecodedClip(60)


async def test_frames_that_nobody_reads_are_counted(make: Make) -> None:
    async with decoder_of(make(".mp4", *H264)) as decoder, decoder.decode(SAME, threads=1) as decoding:
        decoding.outputs[0].close()
        assert await decoding.finished() == DecodedClip(FRAMES)


async def test_more_frames_than_the_limit_end_the_output(make: Make) -> None:
    """A change of the frame rate can exceed the limit, which inspecting does not show."""
    clip = make(".mp4", *H264)
    async with (
        decoder_of(clip, ClipLimits(frames=15)) as decoder,
        decoder.decode(to(rate="50", own_rate="25"), threads=1) as decoding,
    ):
        assert await emitted(decoding) == converted(clip, to(rate="50", own_rate="25"))[: 15 * FRAME]
        with pytest.raises(BadInput, match="it has more than 15 frames, which is the limit"):
            await decoding.finished()
