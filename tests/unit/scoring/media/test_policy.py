"""What may be opened, from variables."""

from pathlib import Path

import pytest

from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.policy import MediaPolicy, format_size
from vmafx.settings import declared


def test_without_variables_it_is_the_default() -> None:
    assert MediaPolicy.from_environ({}) == MediaPolicy()


def test_every_variable_counts() -> None:
    policy = MediaPolicy.from_environ(
        {
            "VMAFX_MEDIA_SCHEMES": "file, HTTPS",
            "VMAFX_MEDIA_ROOTS": "/a:/b/c:",
            "VMAFX_MEDIA_ALLOW_PRIVATE": "true",
            "VMAFX_MEDIA_MAX_BYTES": "10Gi",
        }
    )
    assert policy == MediaPolicy(
        schemes=frozenset({"file", "https"}), roots=(Path("/a"), Path("/b/c")), private=True, max_bytes=10 << 30
    )


@pytest.mark.parametrize(("text", "size"), [("1", 1), ("2Ki", 2048), ("500Mi", 500 << 20), ("2Ti", 2 << 40)])
def test_sizes_are_written_as_in_kubernetes(text: str, size: int) -> None:
    assert MediaPolicy.from_environ({"VMAFX_MEDIA_MAX_BYTES": text}).max_bytes == size


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("VMAFX_MEDIA_SCHEMES", "file,ftp"),
        ("VMAFX_MEDIA_SCHEMES", ","),
        ("VMAFX_MEDIA_ROOTS", ":"),
        ("VMAFX_MEDIA_ROOTS", "clips"),
        ("VMAFX_MEDIA_ALLOW_PRIVATE", "maybe"),
        ("VMAFX_MEDIA_MAX_BYTES", "0"),
        ("VMAFX_MEDIA_MAX_BYTES", "10GB"),
        ("VMAFX_MEDIA_MAX_BYTES", "-1"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_variable(variable: str, text: str) -> None:
    with pytest.raises(BadInput, match=variable) as refused:
        MediaPolicy.from_environ({variable: text})
    assert refused.value.part == "options"


def test_every_setting_is_a_variable_and_no_flag() -> None:
    assert all(
        one.variable.startswith(("VMAFX_MEDIA_", "VMAFX_MODEL_DIR")) and not one.flag
        for one in declared(MediaPolicy).values()
    )


def test_schemes_are_refused_by_what_is_wrong_with_them() -> None:
    with pytest.raises(BadInput, match="ftp:// is not known"):
        MediaPolicy().allow("ftp", "reference")
    with pytest.raises(BadInput, match="s3:// is not allowed here, only file://"):
        MediaPolicy(schemes=frozenset({"file"})).allow("s3", "reference")
    MediaPolicy().allow("gs", "reference")


@pytest.mark.parametrize(("size", "text"), [(5, "5 bytes"), (1 << 20, "1 MiB"), (1536 << 20, "1.5 GiB")])
def test_sizes_as_people_say_them(size: int, text: str) -> None:
    assert format_size(size) == text
