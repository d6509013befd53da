"""The file of --config: what it may say, and what is refused, within a bounded time and memory."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.scoring.engines.ffmpeg import Ffmpeg
from vmafx.scoring.errors import BadInput
from vmafx.tune.config import MAX_CONFIG_BYTES, TuneConfig, VariantConfig
from vmafx.tune.encoders import DEFAULT_ENCODERS
from vmafx.tune.encoding import EncoderTools

TOOLS = EncoderTools(Ffmpeg("/bin/ffmpeg", "7"), frozenset(DEFAULT_ENCODERS[:4]), frozenset(DEFAULT_ENCODERS))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tune.yaml"


def read(file: Path, content: str | bytes) -> TuneConfig:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return TuneConfig.read(file)


def refusal(file: Path, content: str | bytes) -> str:
    with pytest.raises(BadInput) as error:
        read(file, content)
    assert error.value.why.startswith(f"{file} "), error.value.why
    assert "\n" not in error.value.why
    return error.value.why.removeprefix(f"{file} ")


def test_a_file_says_what_to_try(file: Path) -> None:
    config = read(
        file,
        """
        encoders:
        - libx264                       # with its own preset
        - libx264:slow
        - {encoder: libsvtav1, preset: 8, qualities: [30, 40.0]}
        qualities: [20, 26]
        """,
    )
    variants = config.variants(TOOLS)
    assert [one.variant.name for one in variants] == ["libx264", "libx264:slow", "libsvtav1"]
    assert [plan.name for plan in config.plans(variants)] == [
        "libx264 20", "libx264 26", "libx264:slow 20", "libx264:slow 26", "libsvtav1 30", "libsvtav1 40",
    ]  # fmt: skip


def test_a_file_says_which_score_to_search(file: Path) -> None:
    config = read(file, "encoders: [libx264]\ntargetVmaf: 93.5\ntolerance: 1")
    assert (config.targetVmaf, config.tolerance) == (93.5, 1.0)
    for qualities in ("qualities: [20]", "encoders: [{encoder: libx264, qualities: [20]}]"):
        assert refusal(file, f"targetVmaf: 93\n{qualities}") == (
            "has qualities and targetVmaf, which searches among all; remove one"
        )


def test_options_of_an_encoder_make_another_variant(file: Path) -> None:
    config = read(
        file,
        """
        encoders:
        - libx264:slow
        - libx264:slow:tune=film
        - {encoder: libx264, preset: slow, options: {tune: grain, aq-mode: 3}}
        qualities: [20]
        """,
    )
    variants = config.variants(TOOLS)
    assert [one.variant.name for one in variants] == [
        "libx264:slow", "libx264:slow:tune=film", "libx264:slow:aq-mode=3:tune=grain",
    ]  # fmt: skip
    assert len({str(plan.variant.options(20)) for plan in config.plans(variants)}) == 3


@pytest.mark.parametrize("content", ["", "# nothing\n", "{}", "encoders: []"])
def test_an_empty_file_leaves_the_defaults(file: Path, content: str) -> None:
    config = read(file, content)
    assert config == TuneConfig()
    assert [one.encoder for one in config.variants(TOOLS)] == list(DEFAULT_ENCODERS)
    assert len(config.plans(config.variants(TOOLS))) == 4 * len(DEFAULT_ENCODERS)


def test_a_quality_is_tried_once(file: Path) -> None:
    config = read(file, "encoders: [libx264]\nqualities: [20, 20.0, 26]")
    assert [plan.quality for plan in config.plans(config.variants(TOOLS))] == [20, 26]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("encoder: libx264", "is not a valid configuration: Object contains unknown field `encoder`"),
        ("encoders: [{encoder: libx264, crf: 20}]", "is not a valid configuration: Object contains unknown field"),
        ("encoders: libx264", "is not a valid configuration: Expected `array`, got `str` - at `$.encoders`"),
        ("[libx264]", "is not a valid configuration: Expected `object`, got `array`"),
        ("libx264", "is not a valid configuration: Expected `object`, got `str`"),
        ("targetVmaf: 101", "is not a valid configuration: Expected `float` <= 100.0 - at `$.targetVmaf`"),
        ("targetVmaf: nan", "is not a valid configuration: Expected `float` >= 0.0 - at `$.targetVmaf`"),
        ("tolerance: 0", "is not a valid configuration: Expected `float` > 0.0 - at `$.tolerance`"),
        ("tolerance: inf", "is not a valid configuration: Expected `float` <= 20.0 - at `$.tolerance`"),
        ("qualities: []", "is not a valid configuration: Expected `array` of length >= 1 - at `$.qualities`"),
        ("qualities: [" + "1," * 65 + "]", "is not a valid configuration: Expected `array` of length <= 64"),
        ("a: [", "is not a valid configuration: while parsing a flow node"),
        ("a: 1\n---\nb: 2", "is not a valid configuration: expected a single document"),
        (b"\xff\xff", "is not a valid configuration: "),
        (b"a: \x00", "is not a valid configuration: "),
    ],
)  # fmt: skip
def test_a_malformed_file_is_refused(file: Path, content: str | bytes, message: str) -> None:
    assert refusal(file, content).startswith(message)


LAUGHS = "\n".join(
    ["l0: &l0 {a: b}", *(f"l{n}: &l{n} {{<<: [{', '.join([f'*l{n - 1}'] * 10)}]}}" for n in range(1, 12))]
)


@pytest.mark.parametrize("content", [LAUGHS, "a: &a [1]\nencoders: *a", "encoders: &e [*e]", "a: &a b\n<<: *a"])
def test_aliases_are_refused_before_they_are_merged(file: Path, content: str) -> None:
    """Each level of the first one has ten times the keys of the one before."""
    assert "aliases and tags are not supported" in refusal(file, content)


@pytest.mark.parametrize(
    "content",
    ["encoders: !!python/object/apply:os.system [ls]", "!!binary aGk=", "qualities: !!set {1, 2}", "a: !x 1"],
)
def test_tags_are_refused(file: Path, content: str) -> None:
    assert "aliases and tags are not supported" in refusal(file, content)


@pytest.mark.parametrize("content", ["[" * 60_000, "{" * 60_000, "- " * 30_000, "a:\n" + " {" * 20_000, "? " * 30_000])
def test_deep_nesting_is_refused(file: Path, content: str) -> None:
    assert "is not a valid configuration: " in refusal(file, content)


def test_values_that_other_yaml_readers_expand_stay_text(file: Path) -> None:
    """Sexagesimal numbers take time quadratic in their length, and dates become objects."""
    assert "got `str`" in refusal(file, "targetVmaf: " + "59:" * 20_000 + "59")
    assert "Expected" in refusal(file, "targetVmaf: 2026-01-01")
    assert "out of range" in refusal(file, "targetVmaf: " + "9" * 60_000)
    assert read(file, "encoders: [{encoder: libaom-av1, preset: 08}]").encoders == (
        VariantConfig("libaom-av1", "08"),
    )  # and is refused as a preset, not read as a number


def test_a_large_file_is_refused_unread(file: Path) -> None:
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(BadInput, match=r"has more than 65,536 bytes, which is the limit$"):
        TuneConfig.read(file)
    assert refusal(file, "#" * (MAX_CONFIG_BYTES + 1)).endswith("which is the limit")
    assert read(file, "#" * MAX_CONFIG_BYTES) == TuneConfig()


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.yaml", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(BadInput, match=rf"cannot read {path}: {why}"):
            TuneConfig.read(path)


@given(st.binary(max_size=200))
def test_whatever_a_file_contains_it_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(raw)
    with suppress(BadInput):
        TuneConfig.read(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("encoders: [libx264, {encoder: libx264, preset: medium}]", "the encoder libx264 is given twice"),
        ("encoders: [x264]", "'x264' is no encoder that vmaf-tune knows"),
        ("encoders: [{encoder: libx264:slow, preset: fast}]", "libx264 has no preset 'slow:fast'"),
        ("encoders: [h264_nvenc]", "neither ffmpeg nor PyAV on this machine has the encoder h264_nvenc"),
        ("encoders: [libx264]\nqualities: [nan]", "nan is no quality of libx264"),
        ("encoders: [libx264]\nqualities: [-inf]", "-inf is no quality of libx264"),
        ("encoders: [{encoder: libx264, options: {stats: a}}]", "'stats' is no option of libx264"),
        (
            "encoders: [{encoder: libx264, options: {tune: 'film:stats=a'}}]",
            "'film:stats=a' of 'libx264' must not contain",
        ),
        (
            "encoders: ['libx264:tune=film', {encoder: libx264, options: {tune: film}}]",
            "the encoder libx264:tune=film is",
        ),
        ("qualities: [51.5]", "51.5 is no quality of libx264"),
    ],
)
def test_what_no_encoder_can_do_is_refused(file: Path, content: str, message: str) -> None:
    config = read(file, content)
    with pytest.raises(BadInput) as error:
        config.plans(config.variants(TOOLS))
    assert error.value.why.startswith(message)


def test_a_machine_without_encoders_is_refused() -> None:
    with pytest.raises(BadInput, match="this machine has none of the encoders libx264, libx265"):
        TuneConfig().variants(EncoderTools(Ffmpeg("/bin/ffmpeg", "7"), frozenset(), frozenset()))
