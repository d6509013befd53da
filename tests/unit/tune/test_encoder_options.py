"""Options that people pass to encoders: a list of known ones with their values, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.scoring.errors import BadInput
from vmafx.tune.encoder_options import EncoderOption
from vmafx.tune.encoders import ENCODERS, Variant

PASSED = [(name, option) for name, encoder in ENCODERS.items() for option in encoder.passed]
# Chosen by vmaf-tune: rate control, key frames, threads; and what reads or writes files.
TAKEN = {
    "crf", "qp", "b", "cq", "q", "g", "keyint", "min-keyint", "keyint_min", "sc_threshold", "scenecut", "scd", "preset",
    "threads", "cpu-used", "pass", "passlogfile", "stats", "x264-params", "x264opts", "x265-params", "svtav1-params",
    "aom-params", "forced-idr", "rc", "maxrate", "bufsize", "qpfile", "csv", "recon", "analysis-save", "zones", "f",
}  # fmt: skip


def refusal(text: str) -> str:
    with pytest.raises(BadInput) as error:
        Variant.parse(text)
    return error.value.why


def test_no_option_can_be_passed_that_is_chosen_by_vmaf_tune_or_names_a_file() -> None:
    for name, encoder in ENCODERS.items():
        assert not TAKEN & set(encoder.passed)
        chosen = Variant.parse(name).options(30, gop=50)
        assert not set(chosen) & set(encoder.passed)
        inner = {part.partition("=")[0] for value in chosen.values() if "=" in value for part in value.split(":")}
        assert not inner & set(encoder.passed)


@pytest.mark.parametrize(("encoder", "name"), PASSED)
def test_each_value_of_an_option_reaches_the_encoder_once(encoder: str, name: str) -> None:
    option = ENCODERS[encoder].passed[name]
    for value in option.words or (f"{option.low:g}", f"{option.high:g}"):
        variant = Variant.parse(f"{encoder}:{name}={value}")
        assert variant.name == f"{encoder}:{name}={value}"
        assert Variant.parse(variant.name) == variant
        options = variant.options(30, gop=25)
        if option.params:
            assert f"{name}={value}" in options[option.params].split(":")
        else:
            assert options[name] == value
        assert set(Variant.parse(encoder).options(30, gop=25)) <= set(options)


@given(st.sampled_from(PASSED), st.text(max_size=20))
def test_any_text_is_a_listed_value_or_refused(chosen: tuple[str, str], value: str) -> None:
    encoder, name = chosen
    option = ENCODERS[encoder].passed[name]
    parsed = option.parse(value)
    if option.words:
        assert parsed in {None, value}
    elif parsed is not None:
        assert option.low <= float(parsed) <= option.high
        assert set(parsed) <= set("0123456789.-")


def test_variants_that_differ_in_options_are_different_and_those_that_do_not_are_not() -> None:
    film = Variant.parse("libx264:slow:tune=film")
    assert film.name == "libx264:slow:tune=film"
    assert film != Variant.parse("libx264:slow")
    both = Variant.parse("libx264:slow:tune=film:aq-mode=3")
    assert both == Variant.parse("libx264:aq-mode=3.0:slow:tune=film")
    assert both.name == "libx264:slow:aq-mode=3:tune=film"


def test_parameters_of_x265_are_joined_with_those_of_vmaf_tune() -> None:
    options = Variant.parse("libx265:aq-mode=2:tune=grain").options(28, gop=50)
    assert options["tune"] == "grain"
    assert options["x265-params"].startswith("log-level=error:aq-mode=2:keyint=50:")
    assert Variant.parse("libsvtav1:tune=0").options(30)["svtav1-params"] == "tune=0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("libx264:tune=movie", "the option tune of libx264 is film, animation, grain, stillimage, psnr, ssim, "),
        ("libx264:tune=", "the option tune of libx264 is film, "),
        ("libx264:aq-mode=9", "the option aq-mode of libx264 is a whole number from 0 to 3, not '9'"),
        ("libx264:aq-mode=1.5", "the option aq-mode of libx264 is a whole number from 0 to 3, not '1.5'"),
        ("libx264:aq-strength=nan", "the option aq-strength of libx264 is a number from 0 to 3, not 'nan'"),
        ("libx264:aq-mode=1:aq-mode=2", "the option aq-mode of libx264 is given twice"),
        ("libx264:stats=/etc/passwd", "'stats' is no option of libx264 that vmaf-tune passes on; choose from tune, "),
        ("libx264:x264-params=qpfile=/etc/passwd", "'x264-params' is no option of libx264"),
        ("libx265:aq-mode=1,csv=a.csv", "the option aq-mode of libx265 is a whole number from 0 to 4, not '1,csv"),
        ("libx264:=film", "'' is no option of libx264"),
        ("h264_nvenc:tune=hq", "vmaf-tune passes no options on to h264_nvenc"),
    ],
)  # fmt: skip
def test_other_options_and_values_are_refused_with_a_choice(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


def test_what_a_value_may_be_is_said_in_words() -> None:
    assert EncoderOption(("a", "b")).values == "a, b"
    assert EncoderOption((), 0, 1.5, whole=False).values == "a number from 0 to 1.5"
