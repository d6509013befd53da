"""Names and URIs of new jobs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.objects import pattern_of
from vmafx.api.fields import ObjectName
from vmafx.fleet.errors import JobRejected
from vmafx.fleet.submit import clip_uri, job_name_for, model_uri


@given(st.text(max_size=200))
def test_any_clip_gives_a_valid_job_name(clip: str) -> None:
    name = job_name_for(clip)
    assert len(name) <= 52
    assert re.search(pattern_of(ObjectName), name)


@pytest.mark.parametrize(
    ("clip", "stem"),
    [
        ("s3://b/park/AV1 1Mbit.mp4?x=/y.z", "av1-1mbit"),
        ("file:///a/%E2%82%AC.mkv", "job"),
        ("https://host/a.b.mp4#t", "a-b"),
    ],
)
def test_a_job_is_named_after_its_clip_with_a_random_suffix(clip: str, stem: str) -> None:
    assert job_name_for(clip)[:-6] == stem
    assert job_name_for(clip) != job_name_for(clip)


def test_absolute_paths_become_uris_and_relative_paths_are_rejected() -> None:
    assert clip_uri("HTTPS://Host/A.mp4") == "https://Host/A.mp4"
    assert clip_uri("/clips/a b.mp4") == "file:///clips/a%20b.mp4"
    for path in ("a.mp4", "./a.mp4", "~/a.mp4", "", "C:\\a.mp4"):
        with pytest.raises(JobRejected, match="is a relative path, but jobs run on other machines"):
            clip_uri(path)
    assert model_uri("vmaf_v0.6.1") == "vmaf_v0.6.1"
    assert model_uri("/models/mine.json") == "file:///models/mine.json"
    digest = "sha256:" + "0" * 64
    assert model_uri(f"OCI://registry.example.com/vmaf@{digest}") == f"oci://registry.example.com/vmaf@{digest}"
    with pytest.raises(JobRejected, match="oras resolve"):
        model_uri("oci://registry.example.com/vmaf:v3")
    with pytest.raises(JobRejected):
        model_uri("mine.json")
