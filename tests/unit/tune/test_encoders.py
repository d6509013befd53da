"""Encoders, their settings, and how people name them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.scoring.clip import HdrMetadata, LightLevel, MasteringDisplay
from vmafx.scoring.errors import BadInput
from vmafx.tune.encoders import ENCODERS, Variant, library_of, without_hdr

X264 = ENCODERS["libx264"]


@pytest.mark.parametrize("name", ENCODERS)
def test_each_encoder_can_be_named_with_each_preset(name: str) -> None:
    encoder = ENCODERS[name]
    assert Variant.parse(name) == Variant.parse(f" {name}:{encoder.preset} ") == Variant(encoder, encoder.preset)
    assert Variant.parse(name).name == name
    for preset in encoder.presets:
        variant = Variant.parse(f"{name}:{preset}")
        assert Variant.parse(variant.name) == variant


@pytest.mark.parametrize("name", ENCODERS)
def test_what_a_comparison_tries_is_within_the_limits(name: str) -> None:
    encoder = ENCODERS[name]
    for quality in (*encoder.qualities, encoder.best, encoder.worst):
        encoder.check_quality(quality)
        assert f"{quality:g}" in Variant.parse(name).options(quality).values()
    assert sorted(encoder.qualities) == list(encoder.qualities)
    assert len(encoder.qualities) == 4


@given(st.sampled_from(sorted(ENCODERS)), st.integers(0, 1000))
def test_every_step_is_a_quality_and_nothing_between_them(name: str, number: int) -> None:
    encoder = ENCODERS[name]
    quality = round(encoder.best + number * encoder.step, 6)
    if quality <= encoder.worst:
        encoder.check_quality(quality)
    else:
        with pytest.raises(BadInput):
            encoder.check_quality(quality)
    with pytest.raises(BadInput):
        encoder.check_quality(quality + encoder.step / 2)


def test_a_quality_outside_the_limits_is_refused_with_the_limits() -> None:
    for quality in (-1.0, 51.1, float("nan"), float("inf"), 20.05):
        with pytest.raises(BadInput) as error:
            X264.check_quality(quality)
        assert error.value.why == (
            f"{quality:g} is no quality of libx264, which has numbers from 0 (best) to 51 in steps of 0.1"
        )
    with pytest.raises(BadInput, match=r"24\.5 is no quality of libsvtav1, which has whole numbers from 1 \(best\) to"):
        ENCODERS["libsvtav1"].check_quality(24.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x264", "options: 'x264' is no encoder that vmaf-tune knows; choose from libx264, libx265, "),
        ("", "options: '' is no encoder"),
        ("libx264:", "options: libx264 has no preset ''; choose from placebo, veryslow, "),
        ("libx264:8", "options: libx264 has no preset '8'; choose from placebo,"),
        ("libx264:slow:crf", "options: libx264 has no preset 'slow:crf'"),
        ("libaom-av1:9", "options: libaom-av1 has no preset '9'; choose from 0, 1, 2, 3, 4, 5, 6, 7, 8"),
        ("-i\n/etc/passwd", "options: '-i\\n/etc/passwd' is no encoder"),
        ("y" * 1000, f"options: '{'y' * 50}' is no encoder"),
    ],
)
def test_an_unknown_encoder_or_preset_is_refused_with_a_choice(text: str, message: str) -> None:
    with pytest.raises(BadInput) as error:
        Variant.parse(text)
    assert str(error.value).startswith(message)


HDR = HdrMetadata(
    MasteringDisplay((34000, 16000), (13250, 34500), (7500, 3000), (15635, 16450), 50, 10_000_000),
    LightLevel(1000, 400),
)


def test_the_metadata_of_hdr_is_written_in_the_units_of_each_encoder() -> None:
    place = "G(13250,34500)B(7500,3000)R(34000,16000)WP(15635,16450)L(10000000,50)"
    assert Variant.parse("libx264").options(20, hdr=HDR)["x264-params"] == f"mastering-display={place}:cll=1000,400"
    x265 = Variant.parse("libx265").options(20, gop=25, hdr=HDR)["x265-params"].split(":")
    assert x265[-2:] == [f"master-display={place}", "max-cll=1000,400"]
    assert x265[0] == "log-level=error"
    assert Variant.parse("libsvtav1").options(20, hdr=HDR)["svtav1-params"] == (
        "mastering-display=G(0.26500,0.69000)B(0.15000,0.06000)R(0.68000,0.32000)WP(0.31270,0.32900)L(1000.0000,0.0050)"
        ":content-light=1000,400"
    )
    only_light = HdrMetadata(light=LightLevel(600, 0))
    assert Variant.parse("libx264").options(20, hdr=only_light)["x264-params"] == "cll=600,0"
    assert Variant.parse("libvpx-vp9").options(20, hdr=HDR) == Variant.parse("libvpx-vp9").options(20)
    assert without_hdr(["libx264", "libvpx-vp9", "av1_nvenc"]) == ["libvpx-vp9", "av1_nvenc"]


def test_ffmpeg_is_preferred_and_pyav_takes_what_it_lacks() -> None:
    assert library_of(X264, {"libx264"}, {"libx264"}) == "ffmpeg"
    assert library_of(X264, {"libx265"}, {"libx264"}) == "pyav"
    with pytest.raises(BadInput) as error:
        library_of(X264, set(), {"libx265"})
    assert error.value.why == "neither ffmpeg nor PyAV on this machine has the encoder libx264"
    assert "VMAFX_FFMPEG_BIN" in error.value.remedy
