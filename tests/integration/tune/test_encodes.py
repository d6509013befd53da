"""Real encodes by each encoder: frames, formats, colours and scores."""

import csv
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest

from tests.support.commands import VMAFX
from tests.support.tune import Tune, encodes
from tests.support.video import ffmpeg, lossless, raw_input, scene
from vmafx.scoring.clip import Clip, HdrMetadata, LightLevel, MasteringDisplay
from vmafx.scoring.request import Source
from vmafx.scoring.score import Scorer

# The fastest preset of each, and a quality that is nearly lossless.
NEARLY_LOSSLESS = {
    "libx264:ultrafast": 4, "libx265:ultrafast": 4, "libvpx-vp9:8": 4, "libaom-av1:8": 4, "libsvtav1:13": 4,
}  # fmt: skip
CODECS = {"libx264": "h264", "libx265": "hevc", "libvpx-vp9": "vp9", "libaom-av1": "libdav1d", "libsvtav1": "libdav1d"}


def properties(path: Path) -> dict[str, Any]:
    """What another library reads of an encode."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = list(container.decode(video=0))
        return {
            "codec": stream.codec_context.name,
            "frames": len(frames),
            "format": frames[0].format.name,
            "size": (stream.width, stream.height),
            "rate": stream.average_rate,
            "range": int(frames[0].color_range),
            "matrix": int(frames[0].colorspace),
            "transfer": stream.codec_context.color_trc,
            "aspect": stream.sample_aspect_ratio,
        }


def scores_of(tune: Tune, source: Path, files: list[str]) -> list[float]:
    """What `vmafx score` says, of each file."""
    done = tune.run("score", source, *files, "--json", "--no-cache", program=VMAFX)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    return [one["score"] for one in (found if isinstance(found, list) else [found])]


@pytest.mark.parametrize("depth", [8, 10])
def test_every_encoder_keeps_all_frames_and_their_scores_are_those_of_vmafx(
    depth: int, tune: Tune, tmp_path: Path
) -> None:
    source = lossless(scene(frames=10, depth=depth), tmp_path / "source.mkv", rate="24000/1001")
    result = tune.json(source, "--encoders", ",".join(NEARLY_LOSSLESS), "--quality", "4", "--output", "out")
    assert (result["source"]["frames"], result["source"]["frameRate"], result.get("notes", [])) == (10, 23.976, [])
    found = encodes(result)
    assert list(found) == [f"{name} 4" for name in NEARLY_LOSSLESS]
    for name, encode in found.items():
        encoder = name.partition(":")[0]
        path = Path(encode["file"])
        facts = properties(path)
        assert facts["codec"] == CODECS[encoder]
        assert facts["frames"] == encode["frames"] == 10
        assert facts["format"] == ("yuv420p" if depth == 8 else "yuv420p10le")
        assert facts["size"] == (256, 144)
        assert facts["range"] in {0, 1}, "limited, which H.264 need not say"
        assert float(facts["rate"]) == pytest.approx(23.976, rel=0.005)
        assert encode["score"] > 95, name
        assert encode["bytes"] == path.stat().st_size
        assert encode["bitrate"] == pytest.approx(encode["bytes"] * 8 * 24000 / 1001 / 10, abs=0.1)
        assert encode["lowest"] <= encode["p5"] <= encode["score"]
        assert encode["fps"] == pytest.approx(10 / encode["seconds"], rel=0.01)
        assert not encode.get("resumed")
        copy = tune.folder / "out" / f"{name.replace(':', '-').replace(' ', '-')}{path.suffix}"
        assert copy.read_bytes() == path.read_bytes()
    files = [encode["file"] for encode in found.values()]
    assert scores_of(tune, source, files) == [encode["score"] for encode in found.values()]


def test_the_version_is_that_of_vmafx(tune: Tune) -> None:
    assert tune.run("--version").stdout == tune.run("--version", program=VMAFX).stdout


def test_worse_qualities_have_lower_rates_and_scores_and_curves_are_compared(tune: Tune, source: Path) -> None:
    result = tune.json(source, "--encoders", "libx264:ultrafast,libx264:veryfast", "--quality", "40,20,30")
    first, second = result["variants"]
    for variant in (first, second):
        assert [one["quality"] for one in variant["encodes"]] == [40, 20, 30]
        by_quality = sorted(variant["encodes"], key=lambda one: one["quality"])
        for key in ("bitrate", "score", "lowest"):
            values = [one[key] for one in by_quality]
            assert values == sorted(values, reverse=True)
    assert "bdRate" not in first
    assert second["bdRate"] < 0 < second["bdScore"]


@pytest.mark.parametrize(
    ("encoder", "option"),
    [
        ("libx264:ultrafast", "tune=grain"), ("libx265:ultrafast", "psy-rd=0"), ("libvpx-vp9:8", "tune-content=film"),
        ("libaom-av1:8", "enable-cdef=0"), ("libsvtav1:13", "tune=0"),
    ],
)  # fmt: skip
def test_an_encoder_is_compared_with_itself_with_an_option(encoder: str, option: str, tune: Tune, source: Path) -> None:
    arguments = ("--encoders", f"{encoder},{encoder}:{option}", "--quality", "32")
    result = tune.json(source, *arguments, "--output", "out", "--report", "a.csv", "--report", "a.html")
    found = encodes(result)
    assert list(found) == [f"{encoder} 32", f"{encoder}:{option} 32"]
    plain, other = (Path(one["file"]).read_bytes() for one in found.values())
    assert plain != other, "the option has reached the encoder"
    assert [one.get("options") for one in result["variants"]] == [None, dict([option.split("=")])]
    assert len(list((tune.folder / "out").iterdir())) == 2
    rows = list(csv.DictReader((tune.folder / "a.csv").read_text().splitlines()))
    assert [row["options"] for row in rows] == ["", option]
    assert f"{encoder}:{option}" in (tune.folder / "a.html").read_text()


@pytest.mark.parametrize("encoder", ["libx264:ultrafast", "libsvtav1:13"])  # by ffmpeg, and by PyAV
def test_colours_odd_sizes_and_pixel_shapes_of_the_source_are_kept(encoder: str, tune: Tune, tmp_path: Path) -> None:
    plain, source = tmp_path / "plain.yuv", tmp_path / "source.mkv"
    tags = "setparams=range=pc:colorspace=bt709:color_trc=bt709,crop=255:143:0:0:exact=1,setsar=4/3"
    ffmpeg(*raw_input(scene(frames=6), plain), "-vf", f"format=yuv444p,{tags}", "-c:v", "ffv1", source)
    result = tune.json(source, "--encoders", encoder, "--quality", "6")
    (encode,) = encodes(result).values()
    facts = properties(Path(encode["file"]))
    assert (facts["size"], facts["frames"]) == ((254, 142), 6)
    assert (facts["range"], facts["matrix"], facts["transfer"]) == (2, 1, 1)
    assert float(facts["aspect"]) == pytest.approx(4 / 3, rel=0.01)
    assert encode["score"] > 90
    assert result["notes"] == [
        "the source has 4:4:4, and is encoded in 4:2:0",
        "the source has 255x143; encodes have an even width and height",
    ]
    assert scores_of(tune, source, [encode["file"]]) == [encode["score"]]


@pytest.mark.parametrize("encoder", ["libx264:ultrafast", "libsvtav1:13"])
def test_a_source_of_rgb_with_a_variable_rate_is_encoded_and_both_are_noted(
    encoder: str, tune: Tune, tmp_path: Path
) -> None:
    plain, source = tmp_path / "plain.yuv", tmp_path / "source.mkv"
    late = "setpts='PTS+gt(N,3)*7/25/TB'"
    ffmpeg(*raw_input(scene(frames=8), plain), "-vf", f"format=gbrp,{late}", "-fps_mode", "vfr", "-c:v", "ffv1", source)
    result = tune.json(source, "--encoders", encoder, "--quality", "6")
    (encode,) = encodes(result).values()
    facts = properties(Path(encode["file"]))
    assert (facts["frames"], facts["matrix"]) == (8, 6)
    assert facts["range"] in {0, 1}
    assert facts["rate"] == pytest.approx(Fraction(8 * 25, 15), rel=0.01)
    assert encode["score"] > 95
    assert result["notes"][0] == "the source has RGB, and is encoded in 4:2:0"
    assert result["notes"][1].startswith("the source has no constant frame rate; it is encoded at 13.3")


def test_a_policy_for_clips_concerns_the_source_and_not_its_encodes(tune: Tune, source: Path) -> None:
    roots = {"VMAFX_MEDIA_ROOTS": str(source.parent)}
    one = (source, "--encoders", "libx264:ultrafast", "--quality", "30")
    assert next(iter(encodes(tune.json(*one, environment=roots)).values()))["score"] > 80
    done = tune.compare(*one, environment={"VMAFX_MEDIA_ROOTS": str(tune.work)})
    assert (done.returncode, done.stderr.startswith("error: reference: ")) == (2, True)


def test_a_clip_of_one_frame_is_encoded(tune: Tune, tmp_path: Path) -> None:
    source = lossless(scene(frames=1), tmp_path / "one.mkv")
    found = encodes(tune.json(source, "--encoders", ",".join(NEARLY_LOSSLESS), "--quality", "4"))
    assert [encode["frames"] for encode in found.values()] == [1] * 5
    assert min(encode["score"] for encode in found.values()) > 90


def test_the_table_has_a_row_for_each_encode(tune: Tune, source: Path) -> None:
    done = tune.compare(source, "--encoders", "libx264:ultrafast,libx264:veryfast", "--quality", "20,40")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("│")]
    assert [(row[1], row[3]) for row in rows] == [
        (name, quality) for name in ("libx264:ultrafast", "libx264:veryfast") for quality in ("20", "40")
    ]
    assert "libx264:veryfast: BD-rate -" in done.stdout
    narrow = tune.compare(source, "--encoders", "libx264:ultrafast", "--quality", "20", environment={"COLUMNS": "60"})
    assert max(map(len, narrow.stdout.splitlines()[1:])) <= 60


MASTERING = "master-display=G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,50):max-cll=1000,400"


async def clip_of(path: Path) -> Clip:
    """What the confined decoder reports."""
    scorer = Scorer()
    async with scorer.open(Source(str(path)), "reference") as opened:
        return (await scorer.probe(opened)).clip


async def test_hdr10_keeps_its_colours_and_metadata_where_the_encoder_can(tune: Tune, tmp_path: Path) -> None:
    source = tmp_path / "hdr.mp4"
    tags = ("-color_primaries", "bt2020", "-color_trc", "smpte2084", "-colorspace", "bt2020nc")
    raw = raw_input(scene(frames=6, depth=10), tmp_path / "raw.yuv")
    ffmpeg(*raw, *tags, "-c:v", "libx265", "-x265-params", f"log-level=error:{MASTERING}", source)
    expected = HdrMetadata(
        MasteringDisplay((34000, 16000), (13250, 34500), (7500, 3000), (15635, 16450), 50, 10_000_000),
        LightLevel(1000, 400),
    )
    assert (await clip_of(source)).hdr == expected
    names = ("libx264:ultrafast", "libx265:ultrafast", "libsvtav1:13", "libvpx-vp9:8", "libaom-av1:8")
    result = tune.json(source, "--encoders", ",".join(names), "--quality", "30")
    for name, encode in encodes(result).items():
        clip = await clip_of(Path(encode["file"]))
        assert (clip.primaries, clip.transfer, clip.matrix, clip.bit_depth) == (9, 16, 9, 10), name
        kept = expected if name.startswith(("libx26", "libsvt")) else None
        assert clip.hdr == kept, name
    assert result["notes"] == [
        "the source is HDR (PQ); the models were trained on SDR, so its scores compare encodes only",
        "the mastering display and light levels of the source are not kept by libaom-av1, libvpx-vp9",
    ]


@pytest.mark.parametrize(("green", "luminance"), [("60000,34500", "10000000,50"), ("13250,34500", "50,10000000")])
async def test_invalid_metadata_of_hdr_counts_as_none(green: str, luminance: str, tmp_path: Path) -> None:
    """A chromaticity beyond 1, and a display that is darker than black."""
    source = tmp_path / "odd.mp4"
    odd = f"master-display=G({green})B(7500,3000)R(34000,16000)WP(15635,16450)L({luminance}):max-cll=1000,400"
    raw = raw_input(scene(frames=2, depth=10), tmp_path / "raw.yuv")
    ffmpeg(*raw, "-c:v", "libx265", "-x265-params", f"log-level=error:{odd}", source)
    assert (await clip_of(source)).hdr == HdrMetadata(light=LightLevel(1000, 400))
