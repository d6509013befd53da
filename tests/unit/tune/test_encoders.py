"""Encoders, their settings, and how people name them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.scoring.errors import BadInput
from vmafx.tune.encoders import ENCODERS, Variant, library_of

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


def test_ffmpeg_is_preferred_and_pyav_takes_what_it_lacks() -> None:
    assert library_of(X264, {"libx264"}, {"libx264"}) == "ffmpeg"
    assert library_of(X264, {"libx265"}, {"libx264"}) == "pyav"
    with pytest.raises(BadInput) as error:
        library_of(X264, set(), {"libx265"})
    assert error.value.why == "neither ffmpeg nor PyAV on this machine has the encoder libx264"
    assert "VMAFX_FFMPEG_BIN" in error.value.remedy
