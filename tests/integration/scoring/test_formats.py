"""Scores of all kinds of clips, compared with the oracle, which does not use ffmpeg's filters."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from tests.oracle.clips import Clip
from tests.oracle.model import load
from tests.oracle.planes import Luma
from tests.oracle.score import score_frames
from tests.support.video import FFMPEG, FRAMES, SIZE, ffmpeg, lossless, luma, raw_input, scene
from vmafx.api.scoring import Feature, RawFormat
from vmafx.scoring.request import ScoreOptions, Source
from vmafx.scoring.result import Report
from vmafx.scoring.score import Scorer

FEATURE_TOLERANCE, SCORE_TOLERANCE = 1e-3, 0.05  # per frame
Encode = Callable[[Clip, Path], Path]


async def score(reference: Source | Path, distorted: Source | Path, options: ScoreOptions | None = None) -> Report:
    first, second = (one if isinstance(one, Source) else Source(str(one)) for one in (reference, distorted))
    return await Scorer().score(first, second, options)


def assert_agreement(
    report: Report, reference: list[Luma], distorted: list[Luma], depth: int = 8, model: str = ""
) -> None:
    expected = score_frames(reference, distorted, depth, load(FFMPEG, model or report.result.model))
    assert report.numbers.tolist() == list(range(len(expected)))
    for number, frame in enumerate(expected):
        for name in ("vif_scale0", "vif_scale1", "vif_scale2", "vif_scale3", "adm2", "motion2"):
            assert report.values[name][number] == pytest.approx(getattr(frame, name), abs=FEATURE_TOLERANCE), (
                name,
                number,
            )
        assert report.values["vmaf"][number] == pytest.approx(frame.score, abs=SCORE_TOLERANCE), number


def encoder(name: str, *options: str, ending: str = ".mkv") -> Encode:
    def encode(clip: Clip, path: Path) -> Path:
        out = path.with_suffix(ending)
        ffmpeg(*raw_input(clip, path.with_suffix(".tmp.yuv")), "-c:v", name, *options, out)
        return out

    return encode


CODECS = {
    "H.264": encoder("libx264", "-crf", "30", ending=".mp4"),
    "H.264 in a transport stream": encoder("libx264", "-crf", "30", "-bf", "3", ending=".ts"),
    "H.264 without a container": encoder("libx264", "-crf", "30", ending=".264"),
    "HEVC": encoder("libx265", "-crf", "32", "-x265-params", "log-level=none"),
    "HEVC, 10 bit": encoder("libx265", "-crf", "32", "-pix_fmt", "yuv420p10le", "-x265-params", "log-level=none"),
    "VP9": encoder("libvpx-vp9", "-crf", "45", "-b:v", "0", "-cpu-used", "8", ending=".webm"),
    "VP8, with hidden frames": encoder(
        "libvpx", "-b:v", "200k", "-auto-alt-ref", "1", "-lag-in-frames", "16", "-arnr-maxframes", "7", ending=".webm"
    ),
    "AV1": encoder("libaom-av1", "-crf", "50", "-cpu-used", "8", ending=".mp4"),
    "MPEG-2": encoder("mpeg2video", "-q:v", "12", ending=".mpg"),
    "ProRes, 4:2:2 and 10 bit": encoder("prores_ks", "-profile:v", "0", ending=".mov"),
}


@pytest.mark.parametrize("kind", CODECS)
async def test_codecs_agree_with_the_oracle(kind: str, tmp_path: Path) -> None:
    clip = scene(frames=24 if "VP8" in kind else FRAMES)
    distorted = CODECS[kind](clip, tmp_path / "distorted")
    report = await score(lossless(clip, tmp_path / "reference.mkv"), distorted)
    decoded = list(luma(distorted))
    deep = decoded[0].dtype.itemsize > 1
    original = [(plane.astype("u2") << 2).astype("u2") if deep else plane for plane in clip.planes]
    assert_agreement(report, original, decoded, 10 if deep else 8)
    assert report.result.score < 99.9


@pytest.mark.parametrize("depth", [8, 10, 12, 16])
async def test_raw_video_of_any_bit_depth(depth: int, tmp_path: Path) -> None:
    reference, distorted = scene(depth=depth), scene(depth=depth, seed=7)
    noisy = Clip(tuple(plane - plane // 9 for plane in distorted.planes), depth)
    width, height = SIZE
    form = RawFormat(width=width, height=height, pixelFormat=reference.pixel_format)  # type: ignore[arg-type]
    first = Source(str(reference.write(tmp_path / "r.yuv")), form)
    second = Source(str(noisy.write(tmp_path / "d.yuv")), form)
    assert_agreement(await score(first, second), list(reference.planes), list(noisy.planes), depth)


async def test_a_smaller_clip_is_scaled_to_the_reference(tmp_path: Path) -> None:
    clip = scene()
    reference = lossless(clip, tmp_path / "reference.mkv")
    small, back = tmp_path / "small.mp4", tmp_path / "back.mkv"
    ffmpeg("-i", reference, "-vf", "scale=128:72", "-c:v", "libx264", "-crf", "20", small)
    ffmpeg("-i", small, "-vf", "scale=256:144:flags=bicubic", "-c:v", "ffv1", back)
    report = await score(reference, small)
    assert_agreement(report, list(clip.planes), list(luma(back)))
    assert report.result.notes == ("the distorted clip (128x72) was scaled to 256x144, bicubic",)
    assert (report.result.width, report.result.height) == SIZE


async def test_both_clips_are_scaled_to_a_requested_size(tmp_path: Path) -> None:
    clip = scene()
    reference, distorted = lossless(clip, tmp_path / "r.mkv"), CODECS["H.264"](clip, tmp_path / "d")
    large = [tmp_path / "rl.mkv", tmp_path / "dl.mkv"]
    for source, out in zip((reference, distorted), large, strict=True):
        ffmpeg("-i", source, "-vf", "scale=384:216:flags=bicubic", "-c:v", "ffv1", out)
    report = await score(reference, distorted, ScoreOptions(size=(384, 216)))
    assert_agreement(report, list(luma(large[0])), list(luma(large[1])))


async def test_sound_and_attached_pictures_are_ignored(tmp_path: Path) -> None:
    clip = scene()
    reference = lossless(clip, tmp_path / "reference.mkv")
    ffmpeg("-f", "lavfi", "-i", "color=red:s=64x64:d=0.04", "-frames:v", "1", tmp_path / "cover.png")
    ffmpeg(
        *("-i", tmp_path / "cover.png", "-f", "lavfi", "-i", "sine=d=0.3", "-i", reference),
        *("-map", "0", "-map", "1", "-map", "2", "-c:v:0", "png", "-disposition:v:0", "attached_pic"),
        *("-c:v:1", "libx264", "-crf:v:1", "30", "-c:a", "aac", tmp_path / "sound.mp4"),
    )
    ffmpeg("-i", tmp_path / "sound.mp4", "-map", "0:V:0", "-c", "copy", tmp_path / "video.mp4")
    report = await score(reference, tmp_path / "sound.mp4")
    assert_agreement(report, list(clip.planes), list(luma(tmp_path / "video.mp4")))


@pytest.mark.parametrize("degrees", ["90", "180", "270"])
async def test_rotation_metadata_is_applied(degrees: str, tmp_path: Path) -> None:
    clip = scene()
    reference = lossless(clip, tmp_path / "reference.mkv")
    turn = {"90": "transpose=clock", "180": "hflip,vflip", "270": "transpose=cclock"}[degrees]
    ffmpeg("-i", reference, "-vf", turn, "-c:v", "libx264", "-crf", "30", tmp_path / "flat.mp4")
    turned = tmp_path / "turned.mp4"
    ffmpeg("-display_rotation", degrees, "-i", tmp_path / "flat.mp4", "-c", "copy", turned)
    decoded = list(luma(turned))
    assert decoded[0].shape == clip.planes[0].shape
    report = await score(reference, turned)
    assert_agreement(report, list(clip.planes), decoded)
    assert report.result.score > 60


async def test_frames_of_a_variable_frame_rate_are_paired_by_number(tmp_path: Path) -> None:
    clip = scene()
    reference, flat = lossless(clip, tmp_path / "reference.mkv"), CODECS["H.264"](clip, tmp_path / "flat")
    uneven = tmp_path / "uneven.mkv"
    ffmpeg(
        "-i", flat, "-vf", "setpts='(N+mod(N*N,3)/4)/25/TB'", "-fps_mode", "vfr", "-c:v", "libx264", "-qp", "0", uneven
    )
    assert len(list(luma(uneven))) == FRAMES
    assert_agreement(await score(reference, uneven), list(clip.planes), list(luma(flat)))


async def test_differently_rounded_timestamps_do_not_matter(tmp_path: Path) -> None:
    """Paired by timestamp, every third frame would be compared with its neighbour."""
    clip = scene(frames=24)
    reference = lossless(clip, tmp_path / "reference.mkv", rate="24000/1001")  # Matroska rounds to milliseconds
    distorted = tmp_path / "distorted.mp4"
    ffmpeg("-i", reference, "-c:v", "libx264", "-qp", "0", "-video_track_timescale", "24000", distorted)
    report = await score(reference, distorted)
    assert_agreement(report, list(clip.planes), list(clip.planes))
    assert report.result.features["vif_scale0"].min == pytest.approx(1, abs=FEATURE_TOLERANCE)


async def test_a_clip_of_one_frame_is_scored(tmp_path: Path) -> None:
    clip = scene(frames=1)
    distorted = CODECS["H.264"](clip, tmp_path / "distorted")
    report = await score(lossless(clip, tmp_path / "reference.mkv"), distorted)
    assert_agreement(report, list(clip.planes), list(luma(distorted)))
    assert report.result.frames == 1


@pytest.mark.parametrize("model", ["vmaf_v0.6.1neg", "vmaf_4k_v0.6.1"])
async def test_the_other_models_agree_with_the_oracle(model: str, tmp_path: Path) -> None:
    clip = scene()
    distorted = CODECS["H.264"](clip, tmp_path / "distorted")
    report = await score(lossless(clip, tmp_path / "reference.mkv"), distorted, ScoreOptions(model=model))
    assert_agreement(report, list(clip.planes), list(luma(distorted)))


async def test_subsample_scores_every_second_frame(tmp_path: Path) -> None:
    clip = scene()
    reference, distorted = lossless(clip, tmp_path / "reference.mkv"), CODECS["H.264"](clip, tmp_path / "distorted")
    whole, half = await asyncio.gather(
        score(reference, distorted), score(reference, distorted, ScoreOptions(subsample=2))
    )
    assert half.numbers.tolist() == [0, 2, 4, 6]
    assert half.values["adm2"] == whole.values["adm2"][::2]


async def test_all_features_are_measured(tmp_path: Path) -> None:
    clip = scene(frames=2, size=(320, 192))
    distorted = CODECS["H.264"](clip, tmp_path / "distorted")
    options = ScoreOptions(features=get_args(Feature))
    report = await score(lossless(clip, tmp_path / "reference.mkv"), distorted, options)
    assert set(report.values) >= {"psnr_y", "psnr_cb", "psnr_cr", "ssim", "ms_ssim", "psnr_hvs", "ciede", "cambi"}
    error = [((r.astype(float) - d) ** 2).mean() for r, d in zip(clip.planes, luma(distorted), strict=True)]
    assert report.values["psnr_y"].tolist() == pytest.approx(10 * np.log10(255**2 / np.array(error)), abs=1e-3)
    assert report.values["psnr_hvs_cb"].tolist() == [100.0, 100.0]  # grey against grey
