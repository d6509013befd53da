"""The options that `score` and `submit` share: each error names the option that was given."""

import pytest

from vmafx.cli.scoring_flags import ScoringFlags
from vmafx.scoring.errors import BadInput


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"threads": 129}, "--threads must be 0 to 128, not 129"),
        ({"threads": -1}, "--threads must be 0 to 128, not -1"),
        ({"subsample": 0}, "--subsample must be 1 to 1000, not 0"),
        ({"pooling": "most"}, "--pool must be mean, harmonic_mean, min, max, median or a percentile p1 to p99"),
    ],
)
def test_a_wrong_option_is_named_by_its_flag(flags: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput) as error:
        ScoringFlags(**flags).options()  # type: ignore[arg-type]
    assert error.value.why.startswith(message)


@pytest.mark.parametrize(
    ("flags", "distorted", "message"),
    [
        ({"size": "64x64"}, "a.mp4", "--size is for raw video, but a.mp4 is a container file; omit it"),
        (
            {"distorted_size": "64x64"},
            "a.mp4",
            "--distorted-size is for raw video, but a.mp4 is a container file; omit it",
        ),
        ({"distorted_size": "big"}, "a.raw", "--distorted-size 'big' is not a size; use e.g. 1920x1080"),
        ({"pix_fmt": "gray"}, "a", "--pix-fmt is for raw video, which also needs --size"),
        ({"pix_fmt": "gray", "fps": 25.0}, "a", "--pix-fmt and --fps are for raw video, which also needs --size"),
        (
            {"size": "64x64", "distorted_pix_fmt": "nv12"},
            "a",
            "unknown --distorted-pix-fmt 'nv12'; choose from yuv420p",
        ),
    ],
)
def test_a_wrong_raw_format_is_named_by_the_option_given(
    flags: dict[str, object], distorted: str, message: str
) -> None:
    with pytest.raises(BadInput) as error:
        ScoringFlags(**flags).formats("reference", [distorted])  # type: ignore[arg-type]
    assert error.value.why.startswith(message)
