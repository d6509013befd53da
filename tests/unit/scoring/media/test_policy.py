"""The media policy and its variables."""

from pathlib import Path

import pytest

from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.policy import MediaPolicy, format_size
from vmafx.settings import declared


def test_without_variables_the_defaults_apply() -> None:
    assert MediaPolicy.from_environ({}) == MediaPolicy()


def test_every_variable_is_applied() -> None:
    policy = MediaPolicy.from_environ(
        {
            "VMAFX_MEDIA_SCHEMES": "file, HTTPS",
            "VMAFX_MEDIA_ROOTS": "/a:/b/c:",
            "VMAFX_MEDIA_ALLOW_PRIVATE": "true",
            "VMAFX_MEDIA_MAX_BYTES": "10Gi",
            "VMAFX_MEDIA_FETCH_SECONDS": "60",
            "VMAFX_INSECURE_REGISTRIES": "registry.team:5000, other",
            "DOCKER_CONFIG": "/credentials",
        }
    )
    assert policy == MediaPolicy(
        schemes=frozenset({"file", "https"}),
        roots=(Path("/a"), Path("/b/c")),
        private=True,
        max_bytes=10 << 30,
        fetch_seconds=60,
        insecure_registries=frozenset({"registry.team:5000", "other"}),
        docker_config=Path("/credentials"),
    )


def test_jobs_may_do_less_unless_the_node_allows_it() -> None:
    assert MediaPolicy.for_jobs({}, job="uid") == MediaPolicy(cloud_identity=False, job="uid")
    allowed = {
        "VMAFX_OUTPUT_DIR": "/a:/b",
        "VMAFX_OUTPUT_REPLACE": "true",
        "VMAFX_MEDIA_CLOUD_IDENTITY": "true",
        "VMAFX_MEDIA_ROOTS": "/c",
    }
    assert MediaPolicy.for_jobs(allowed) == MediaPolicy(
        roots=(Path("/c"),), outputs=(Path("/a"), Path("/b")), replace_outputs=True, cloud_identity=True
    )
    assert MediaPolicy.from_environ(allowed) == MediaPolicy(roots=(Path("/c"),))  # of a person on their own machine


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1", 1),
        ("2Ki", 2048),
        ("500Mi", 500 << 20),
        ("2Ti", 2 << 40),
        ("10G", 10**10),
        ("1.5Gi", 3 << 29),
        ("1Pi", 1 << 50),
    ],
)
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
        ("VMAFX_MEDIA_FETCH_SECONDS", "0"),
        ("VMAFX_INSECURE_REGISTRIES", "http://registry"),
        ("VMAFX_OUTPUT_REPLACE", "maybe"),
        ("VMAFX_MEDIA_CLOUD_IDENTITY", "maybe"),
    ],
)
def test_the_error_for_an_invalid_value_names_the_variable(variable: str, text: str) -> None:
    with pytest.raises(BadInput, match=variable) as refused:
        MediaPolicy.for_jobs({variable: text})
    assert refused.value.part == "options"


def test_every_setting_has_a_variable_and_no_flag() -> None:
    assert all(
        setting.variable.startswith(("VMAFX_", "DOCKER_CONFIG")) and not setting.flag
        for setting in declared(MediaPolicy).values()
    )


def test_unsupported_and_forbidden_schemes_are_refused() -> None:
    with pytest.raises(BadInput, match="ftp:// is not supported"):
        MediaPolicy().check_scheme("ftp", "reference")
    with pytest.raises(BadInput, match="s3:// is not allowed: VMAFX_MEDIA_SCHEMES allows only file://"):
        MediaPolicy(schemes=frozenset({"file"})).check_scheme("s3", "reference")
    MediaPolicy().check_scheme("gs", "reference")


@pytest.mark.parametrize(("size", "text"), [(5, "5 bytes"), (1 << 20, "1 MiB"), (1536 << 20, "1.5 GiB")])
def test_sizes_are_formatted_with_binary_units(size: int, text: str) -> None:
    assert format_size(size) == text
