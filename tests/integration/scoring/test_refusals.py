"""Refused clips: pairs that cannot be compared, damaged clips, hostile files. And the options that accept some."""

import json
import re
import struct
from pathlib import Path

import pytest

from tests.oracle.model import load
from tests.support.video import FFMPEG, SIZE, ffmpeg, lossless, raw_input, scene
from vmafx.api.scoring import RawFormat
from vmafx.scoring.engines.find import Engines
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.request import ClipLimits, ScoreOptions, Source
from vmafx.scoring.result import Report
from vmafx.scoring.score import Scorer


async def score(
    reference: Path | Source,
    distorted: Path | Source,
    options: ScoreOptions | None = None,
    limits: ClipLimits | None = None,
    policy: MediaPolicy | None = None,
) -> Report:
    first, second = (one if isinstance(one, Source) else Source(str(one)) for one in (reference, distorted))
    return await Scorer(Engines(), policy, limits).score(first, second, options)


async def refusal(reference: Path | Source, distorted: Path | Source, **more: object) -> str:
    with pytest.raises(BadInput) as refused:
        await score(reference, distorted, **more)  # type: ignore[arg-type]
    return str(refused.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with reference.mkv and a matching distorted.mp4."""
    clips = tmp_path_factory.mktemp("clips")
    reference = lossless(scene(frames=20), clips / "reference.mkv")
    ffmpeg("-i", reference, "-c:v", "libx264", "-crf", "30", "-movflags", "+faststart", clips / "distorted.mp4")
    return clips


def cut(source: Path, out: Path, *options: str) -> Path:
    ffmpeg("-i", source, *options, "-c:v", "libx264", "-crf", "30", out)
    return out


async def test_a_shorter_clip_is_refused_and_scored_with_shortest(folder: Path, tmp_path: Path) -> None:
    reference = folder / "reference.mkv"
    short = cut(reference, tmp_path / "short.mp4", "-frames:v", "10")
    assert await refusal(reference, short) == "distorted: it has 10 frames, but the reference has 20"
    assert "it has 20 frames, but the reference has 10" in await refusal(short, reference)
    common = await score(reference, short, ScoreOptions(shortest=True))
    ffmpeg("-i", reference, "-frames:v", "10", "-c:v", "ffv1", tmp_path / "ten.mkv")
    alone = await score(tmp_path / "ten.mkv", short)
    assert common.result.frames == 10
    assert "only the first 10 frames were scored: the reference has 20, the distorted clip 10" in common.result.notes
    assert common.values["vmaf"] == alone.values["vmaf"]
    assert min(common.values["vmaf"]) > 50  # no frame was compared with a repeated one


async def test_a_clip_that_is_one_frame_short_is_refused_after_decoding(folder: Path, tmp_path: Path) -> None:
    """The difference is within the tolerance for packet counts, so only the decoded frames show it."""
    short = cut(folder / "reference.mkv", tmp_path / "short.mp4", "-frames:v", "19")
    assert "it has 19 frames, but the reference has 20" in await refusal(folder / "reference.mkv", short)


async def test_another_frame_rate_is_refused_and_scored_with_conform(folder: Path, tmp_path: Path) -> None:
    twice = cut(folder / "reference.mkv", tmp_path / "twice.mp4", "-vf", "fps=50")
    wrong = "distorted: its frame rate is 50 fps, but the reference has 25 fps"
    assert await refusal(folder / "reference.mkv", twice) == wrong
    report = await score(folder / "reference.mkv", twice, ScoreOptions(conform=True))
    assert report.result.frames == 20
    assert min(report.values["vmaf"]) > 50
    assert "was converted to 25 fps" in report.result.notes[-1]
    rounded = tmp_path / "rounded.mkv"  # Matroska rounds timestamps to milliseconds
    ffmpeg("-i", twice, "-c", "copy", rounded)
    assert (await score(folder / "reference.mkv", rounded, ScoreOptions(conform=True))).values == report.values


async def test_conform_refuses_a_gap_of_an_hour(folder: Path, tmp_path: Path) -> None:
    """Conforming would turn 20 frames into 90,000, which ffmpeg holds in memory."""
    gap = cut(
        folder / "reference.mkv", tmp_path / "gap.mkv", "-vf", "setpts='PTS+gte(N,10)*3600/TB'", "-fps_mode", "vfr"
    )
    message = await refusal(folder / "reference.mkv", gap, options=ScoreOptions(conform=True, shortest=True))
    assert "one of its frames lasts 3600 s" in message
    assert (await score(folder / "reference.mkv", gap)).result.frames == 20


async def test_another_aspect_ratio_is_refused_and_scored_with_stretch(folder: Path, tmp_path: Path) -> None:
    square = cut(folder / "reference.mkv", tmp_path / "square.mp4", "-vf", "scale=144:144,setsar=1")
    assert "its aspect ratio (144x144, 1.000:1) differs from the reference's (256x144, 1.778:1)" in (
        await refusal(folder / "reference.mkv", square)
    )
    assert (await score(folder / "reference.mkv", square, ScoreOptions(stretch=True))).result.score > 10
    anamorphic = cut(folder / "reference.mkv", tmp_path / "wide.mp4", "-vf", "scale=144:144,setsar=16/9")
    assert (await score(folder / "reference.mkv", anamorphic)).result.score > 10


async def test_full_and_limited_range_are_converted(folder: Path, tmp_path: Path) -> None:
    full = cut(folder / "reference.mkv", tmp_path / "full.mp4", "-vf", "scale=out_range=full", "-pix_fmt", "yuvj420p")
    one, other = await score(folder / "reference.mkv", full), await score(full, folder / "reference.mkv")
    assert "full-range" in one.result.notes[0]
    assert "full-range" in other.result.notes[0]
    usual = await score(folder / "reference.mkv", folder / "distorted.mp4")
    assert [one.result.score, other.result.score] == pytest.approx([usual.result.score] * 2, abs=3)


@pytest.mark.parametrize("lost", [1, 50, 500, 2000, 5000])
async def test_a_truncated_clip_is_refused(lost: int, folder: Path, tmp_path: Path) -> None:
    """Truncated within a frame it is damaged, between two frames it is too short."""
    short = tmp_path / "cut.mp4"
    short.write_bytes((folder / "distorted.mp4").read_bytes()[:-lost])
    message = await refusal(folder / "reference.mkv", short)
    assert "the clip is damaged or truncated" in message or "but the reference has 20" in message
    message = await refusal(short, folder / "reference.mkv")
    assert message.startswith("reference: ffmpeg reported") or "it has 20 frames" in message


async def test_a_damaged_clip_is_refused_and_scored_with_damaged(folder: Path, tmp_path: Path) -> None:
    content = bytearray((folder / "distorted.mp4").read_bytes())
    middle = len(content) * 2 // 3
    content[middle : middle + 60] = bytes(byte ^ 0x5A for byte in content[middle : middle + 60])
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(content)
    assert re.fullmatch(
        r"distorted: ffmpeg reported \d+ decoding errors?: the clip is damaged or truncated",
        await refusal(folder / "reference.mkv", broken),
    )
    report = await score(folder / "reference.mkv", broken, ScoreOptions(damaged=True, shortest=True))
    assert "the distorted clip is damaged: ffmpeg reported" in report.result.notes[-1]
    assert "reference: ffmpeg reported" in await refusal(broken, folder / "distorted.mp4")


async def test_a_distorted_clip_that_changes_its_frame_size_is_scored(folder: Path, tmp_path: Path) -> None:
    """As adaptive streams do. By default ffmpeg would restart its filters, and libvmaf lose the earlier frames."""
    parts = []
    for name, size, frames in (("a", "256:144", "0:10"), ("b", "128:72", "10:20")):
        part = tmp_path / f"{name}.264"
        first, last = frames.split(":")
        cut(folder / "reference.mkv", part, "-vf", f"trim=start_frame={first}:end_frame={last},scale={size}")
        parts.append(part.read_bytes())
    (tmp_path / "both.264").write_bytes(b"".join(parts))
    report = await score(folder / "reference.mkv", tmp_path / "both.264")
    assert report.result.frames == 20
    assert min(report.values["vmaf"][:10]) > max(report.values["vmaf"][10:])
    assert "changes its frame size, between 256x144 and 128x72" in report.result.notes[-1]
    assert "reference: its pixel format, colour range or size changes within the clip" in (
        await refusal(tmp_path / "both.264", folder / "reference.mkv")
    )


@pytest.mark.parametrize("change", ["scale=256:144:out_range=full,format=yuvj420p", "crop=192:144", "format=yuv444p"])
async def test_a_distorted_clip_that_changes_its_format_is_refused(change: str, folder: Path, tmp_path: Path) -> None:
    cut(folder / "reference.mkv", tmp_path / "a.264", "-vf", "trim=end_frame=10", "-bf", "0")
    cut(folder / "reference.mkv", tmp_path / "b.264", "-vf", f"trim=start_frame=10,{change}", "-bf", "0")
    (tmp_path / "both.264").write_bytes((tmp_path / "a.264").read_bytes() + (tmp_path / "b.264").read_bytes())
    assert "distorted: its pixel format, colour range or size changes within the clip" in (
        await refusal(folder / "reference.mkv", tmp_path / "both.264")
    )


async def test_a_clip_cannot_forge_a_log_message_about_the_reference(folder: Path, tmp_path: Path) -> None:
    """FFmpeg's libraries print the DocType of a Matroska file; each clip has a decoder and a log of its own."""
    title = "x\n[in#1/matroska @ 0x1] [error] corrupt input packet"
    forged = tmp_path / "forged.mkv"
    ffmpeg("-i", folder / "distorted.mp4", "-c", "copy", forged)
    content = forged.read_bytes()
    at = content.index(b"matroska")  # the EBML DocType
    size = content[at - 1]
    assert size == 0x80 | len("matroska")
    longer = title.encode()
    header = bytearray(content[: at - 1]) + bytes([0x40, len(longer)]) + longer + content[at + 8 :]
    grown = len(longer) + 1 - len("matroska")
    length_at = 4
    assert header[length_at] in {0x01, 0x40} or header[length_at] & 0x80
    if header[length_at] == 0x01:
        old = int.from_bytes(header[length_at + 1 : length_at + 8], "big")
        header[length_at + 1 : length_at + 8] = (old + grown).to_bytes(7, "big")
    else:
        header[length_at] = 0x80 | ((header[length_at] & 0x7F) + grown)
    forged.write_bytes(header)
    assert (await score(folder / "reference.mkv", forged)).result.notes == ()


async def test_files_without_video_are_refused(folder: Path, tmp_path: Path) -> None:
    reference = folder / "reference.mkv"
    text = tmp_path / "text.mp4"
    text.write_text("this is not a video\n" * 100)
    assert "cannot read it" in await refusal(reference, text)
    (tmp_path / "empty.mp4").touch()
    assert "empty" in await refusal(reference, tmp_path / "empty.mp4")
    ffmpeg("-f", "lavfi", "-i", "sine=d=1", tmp_path / "sound.m4a")
    assert "it has no video stream" in await refusal(reference, tmp_path / "sound.m4a")
    assert "no file" in await refusal(tmp_path / "none.mp4", reference)


async def test_raw_video_with_a_wrong_frame_size_is_refused(tmp_path: Path) -> None:
    path = scene().write(tmp_path / "clip.yuv")
    wrong = Source(str(path), RawFormat(width=256, height=145, pixelFormat="yuv420p"))
    assert "are not a whole number of 256x145 yuv420p frames" in await refusal(wrong, wrong)
    assert "it is not a video, it is truncated, or its format is not supported" in await refusal(path, path)


async def test_frames_too_small_for_vmaf_are_refused(tmp_path: Path) -> None:
    tiny = lossless(scene(size=(48, 32)), tmp_path / "tiny.mkv")
    assert "48x32 is too small for VMAF" in await refusal(tiny, tiny)
    assert (await score(tiny, tiny, ScoreOptions(size=(192, 128)))).result.frames == 8


async def test_features_that_need_larger_frames_are_refused(folder: Path) -> None:
    clips = folder / "reference.mkv", folder / "distorted.mp4"
    assert "ms_ssim needs 176x176" in await refusal(*clips, options=ScoreOptions(features=("ms_ssim",)))
    assert "cambi needs a width of 320 to 4096" in await refusal(*clips, options=ScoreOptions(features=("cambi",)))


async def test_unknown_and_invalid_models_are_refused(folder: Path, tmp_path: Path) -> None:
    clips = folder / "reference.mkv", folder / "distorted.mp4"
    assert await refusal(*clips, options=ScoreOptions(model="vmaf_v9")) == (
        "model: there is no model 'vmaf_v9'; use vmaf_v0.6.1, vmaf_v0.6.1neg, vmaf_4k_v0.6.1,"
        " the path or URI of a model in JSON, or the name of a model in VMAFX_MODEL_DIR (not set)"
    )
    wrong = tmp_path / "wrong.json"
    wrong.write_text('{"model_dict": {}}')
    assert "is not a VMAF model in JSON" in await refusal(*clips, options=ScoreOptions(model=str(wrong)))
    numbers = load(FFMPEG, "vmaf_v0.6.1").numbers
    for changes, message in (
        ({"model_type": "MAGIC"}, "of type 'MAGIC'"),
        ({"feature_names": []}, "is not a VMAF model in JSON"),
        ({"slopes": numbers["slopes"][1:]}, "needs 7 slopes and intercepts"),
        ({"model": "svm_type nonsense"}, "libvmaf cannot score with the model"),
        ({"feature_names": ["VMAF_integer_feature_none_score"] * 6}, "libvmaf cannot score with the model"),
    ):
        wrong.write_text(json.dumps({"model_dict": numbers | changes}))
        assert message in await refusal(*clips, options=ScoreOptions(model=str(wrong))), changes
    unbounded = {name: value for name, value in numbers.items() if name != "score_clip"}
    wrong.write_text(json.dumps({"model_dict": unbounded}))
    assert "score_clip" in await refusal(*clips, options=ScoreOptions(model=str(wrong)))


async def test_a_model_file_scores_like_the_same_built_in_model(folder: Path, tmp_path: Path) -> None:
    clips = folder / "reference.mkv", folder / "distorted.mp4"
    path = tmp_path / "copy.json"
    path.write_text(json.dumps({"model_dict": load(FFMPEG, "vmaf_4k_v0.6.1").numbers}))
    by_name = await score(*clips, ScoreOptions(model="vmaf_4k_v0.6.1"))
    by_path = await score(*clips, ScoreOptions(model=str(path)))
    assert by_path.values["vmaf"] == by_name.values["vmaf"]
    assert by_path.result.model == str(path)


PLAYLISTS = {
    "hls": "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{target}\n#EXT-X-ENDLIST\n",
    "hls by file:": "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile://{target}\n#EXT-X-ENDLIST\n",
    "concat": "ffconcat version 1.0\nfile '{target}'\n",
    "sdp": "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\n"
    "a=rtpmap:96 H264/90000\n",
    "dash": '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" profiles="x">'
    "<Period><AdaptationSet mimeType='video/mp4'><Representation id='1' bandwidth='1'>"
    "<BaseURL>{target}</BaseURL></Representation></AdaptationSet></Period></MPD>\n",
}


@pytest.mark.parametrize("kind", PLAYLISTS)
async def test_playlists_are_refused(kind: str, folder: Path, tmp_path: Path) -> None:
    """An ffmpeg without a whitelist would play the distorted clip from each of these."""
    path = tmp_path / "list.mp4"
    path.write_text(PLAYLISTS[kind].format(target=folder / "distorted.mp4"))
    assert "cannot read it" in await refusal(folder / "reference.mkv", path)


async def test_frames_larger_than_the_limit_are_refused_by_their_header(folder: Path, tmp_path: Path) -> None:
    huge = tmp_path / "huge.mkv"
    ffmpeg("-f", "lavfi", "-i", "color=black:s=64x64:d=0.2", "-c:v", "libx264", tmp_path / "small.mkv")
    ffmpeg("-f", "lavfi", "-i", "color=black:s=8192x8192:d=0.04", "-c:v", "libx264", "-preset", "ultrafast", huge)
    assert "frames of 8192x8192 are larger than the limit of 35,389,440 pixels" in (
        await refusal(folder / "reference.mkv", huge)
    )


async def test_a_clip_whose_frames_become_too_large_is_refused(folder: Path, tmp_path: Path) -> None:
    """256x144 in its header, 8192x8192 later: the decoder has the same limit."""
    small, large = tmp_path / "small.264", tmp_path / "large.264"
    cut(folder / "reference.mkv", small, "-frames:v", "10")
    black = "color=black:s=8192x8192:r=25:d=0.4"
    ffmpeg("-f", "lavfi", "-i", black, "-c:v", "libx264", "-preset", "ultrafast", large)
    bomb = tmp_path / "bomb.264"
    bomb.write_bytes(small.read_bytes() + large.read_bytes())
    message = await refusal(folder / "reference.mkv", bomb)
    assert "damaged" in message or "frames" in message


async def test_more_frames_than_the_limit_are_refused(folder: Path) -> None:
    few = ClipLimits(frames=15)
    assert "it has more than 15 frames" in await refusal(folder / "reference.mkv", folder / "distorted.mp4", limits=few)


async def test_a_forged_header_with_too_large_frames_is_refused(tmp_path: Path, folder: Path) -> None:
    """Raw video in an AVI whose header claims a million frames of 8192x8192."""
    path = tmp_path / "forged.avi"
    ffmpeg(*raw_input(scene(frames=2), tmp_path / "s.yuv"), "-c:v", "rawvideo", path)
    content = bytearray(path.read_bytes())
    header = content.index(b"avih") + 8
    struct.pack_into("<I", content, header + 16, 1_000_000)
    struct.pack_into("<II", content, header + 32, 8192, 8192)
    stream = content.index(b"strf") + 8
    struct.pack_into("<II", content, stream + 4, 8192, 8192)
    path.write_bytes(content)
    assert "larger than the limit" in await refusal(folder / "reference.mkv", path)


@pytest.mark.parametrize(
    "name", ["-i.mp4", "-f concat.mp4", "a b'c\";$(touch x).mp4", "%d.mp4", "pipe:0", "concat:a|b"]
)
async def test_file_names_are_never_parsed_as_options(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes((folder / "distorted.mp4").read_bytes())
    report = await score(folder / "reference.mkv", Source(name))
    assert report.result.frames == 20
    assert sorted(path.name for path in tmp_path.iterdir()) == [name]


async def test_a_clip_outside_the_allowed_folders_is_refused(folder: Path, tmp_path: Path) -> None:
    allowed = MediaPolicy(roots=(tmp_path,))
    link = tmp_path / "link.mp4"
    link.symlink_to(folder / "distorted.mp4")
    assert "reference: " in await refusal(folder / "reference.mkv", link, policy=allowed)
    inside = tmp_path / "reference.mkv"
    inside.write_bytes((folder / "reference.mkv").read_bytes())
    assert "distorted: " in await refusal(inside, link, policy=allowed)
    assert (await score(inside, inside, policy=allowed)).result.frames == 20


async def test_other_pixel_formats_are_converted(tmp_path: Path) -> None:
    """RGB, grey and alpha compared with YUV."""
    reference = lossless(scene(frames=3), tmp_path / "reference.mkv")
    for name, options in {
        "rgb.mkv": ("-pix_fmt", "bgr0", "-c:v", "ffv1"),
        "grey.mkv": ("-pix_fmt", "gray", "-c:v", "ffv1"),
        "alpha.mov": ("-c:v", "prores_ks", "-profile:v", "4444", "-pix_fmt", "yuva444p10le"),
        "animated.gif": (
            "-pix_fmt",
            "rgb8",
        ),
    }.items():
        ffmpeg("-i", reference, *options, tmp_path / name)
        report = await score(reference, tmp_path / name)
        assert report.result.frames == 3
        assert report.result.score > (20 if "gif" in name else 85), name
    assert (report.result.width, report.result.height) == SIZE


DECODERS = {
    "mjpeg": ("-pix_fmt", "yuvj420p"),
    "ffv1": ("-slicecrc", "1", "-level", "3"),
    "mpeg4": (),
    "prores_ks": ("-pix_fmt", "yuv422p10le"),
}


@pytest.mark.parametrize("codec", DECODERS)
async def test_damage_found_by_the_decoder_is_refused(codec: str, folder: Path, tmp_path: Path) -> None:
    clip = tmp_path / "clip.mkv"
    ffmpeg("-i", folder / "reference.mkv", "-c:v", codec, *DECODERS[codec], clip)
    content = bytearray(clip.read_bytes())
    for middle in range(len(content) // 3, len(content) // 3 + 4000, 97):
        content[middle] ^= 0xFF
    clip.write_bytes(content)
    assert "distorted: ffmpeg reported" in await refusal(folder / "reference.mkv", clip)
    assert "reference: ffmpeg reported" in await refusal(clip, folder / "distorted.mp4")


async def test_the_default_of_several_video_streams_is_scored_with_a_note(folder: Path, tmp_path: Path) -> None:
    both = tmp_path / "both.mkv"
    black = ("-f", "lavfi", "-i", "color=black:s=256x144:r=25:d=0.8")
    maps = ("-map", "0:v", "-map", "1:v", "-c:v", "libx264", "-crf", "20")
    ffmpeg(*black, "-i", folder / "reference.mkv", *maps, "-disposition:v:0", "0", "-disposition:v:1", "default", both)
    report = await score(folder / "reference.mkv", both)
    assert report.result.score > 85
    assert "the distorted clip has 2 video streams" in report.result.notes[0]


async def test_tags_in_another_character_set_are_ignored(folder: Path, tmp_path: Path) -> None:
    clip = tmp_path / "clip.mkv"
    ffmpeg("-i", folder / "distorted.mp4", "-c", "copy", "-metadata", "title=Gr__e", clip)
    clip.write_bytes(clip.read_bytes().replace(b"Gr__e", b"Gr\xfc\xdfe"))
    assert (await score(folder / "reference.mkv", clip)).result.frames == 20


async def test_a_missing_frame_is_noted(folder: Path, tmp_path: Path) -> None:
    lost = tmp_path / "lost.mkv"
    only = ("-vf", "select='not(eq(n,9))'", "-fps_mode", "vfr")
    cut(folder / "reference.mkv", lost, *only)
    ffmpeg("-i", folder / "reference.mkv", "-frames:v", "19", "-c:v", "ffv1", tmp_path / "nineteen.mkv")
    report = await score(tmp_path / "nineteen.mkv", lost)
    assert "from frame 9 on, the timestamps of the clips differ by 1 frame:" in report.result.notes[-1]


@pytest.mark.parametrize("case", ["yuv444p ciede", "yuv420p12le cambi", "yuv420p16le psnr_hvs"])
async def test_features_are_measured_at_a_format_that_libvmaf_supports(case: str, tmp_path: Path) -> None:
    pixels, feature = case.split()
    clip = lossless(scene(frames=2, size=(320, 192)), tmp_path / "clip.mkv")
    other = tmp_path / "other.mkv"
    ffmpeg("-i", clip, "-vf", "noise=alls=20", "-pix_fmt", pixels, "-c:v", "ffv1", other)
    report = await score(other, clip, ScoreOptions(features=(feature,)))  # type: ignore[arg-type]
    assert max(report.values[feature]) < 100


async def test_the_error_for_an_unreadable_file_suggests_reasons(tmp_path: Path) -> None:
    (tmp_path / "cut.mp4").write_bytes(b"\0\0\0\x20ftypisom")
    message = await refusal(tmp_path / "cut.mp4", tmp_path / "cut.mp4")
    assert "it is not a video, it is truncated, or its format is not supported" in message
