"""Paths as file URIs and back, for any path."""

import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vmafx.controller.jobs import job_spec
from vmafx.controller.paths import PATH_FIELDS, path_of, submitted_paths, uri_of, with_uris
from vmafx.http.errors import StatusError
from vmafx.scoring.media.uri import locate

URI = re.compile(r"file:///[!-~]*")  # no spaces, no control characters, ASCII
PATHS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).map("/{}".format)


@given(PATHS)
@example("/one two %20 # ? ü 東京 \n\x7f.mp4")
@example("//host/a//b/../c/./d")
@example("/localhost/:8080@a")
def test_a_path_becomes_a_uri_that_leads_back_to_it(path: str) -> None:
    uri = uri_of(path)
    assert URI.fullmatch(uri)
    assert not re.search(r"[?#]", uri)
    assert path_of(uri) == path
    assert locate(uri, "reference").target == path  # what a worker opens


ENCODED = st.binary(min_size=1).map(lambda path: "file:///%" + path.hex("%"))


@given(st.text() | st.text().map("file://{}".format) | ENCODED)
@example("file:///%FF.mp4")
@example("file:///%ED%A0%80")
@example("file:///a%00b")
@example("vmaf_v0.6.1")
def test_any_text_has_a_path_that_fits_into_a_message(uri: str) -> None:
    found = path_of(uri)
    assert found == uri or found.startswith("/")
    if found != uri:
        found.encode()


def test_only_paths_are_replaced_and_listed() -> None:
    spec: dict[str, Any] = {"reference": "/a b", "distorted": "s3://c/d", "model": "/m.json", "output": "/o", "x": 1}
    changed, annotations = with_uris(spec)
    assert changed == spec | {"reference": "file:///a%20b", "model": "file:///m.json"}
    assert submitted_paths(annotations) == {"reference", "model"}
    assert with_uris({"reference": "s3://a/b", "distorted": 7, "model": "vmaf_v0.6.1"}).annotations == {}
    assert not submitted_paths({}) & set(PATH_FIELDS)


def test_a_path_whose_uri_is_too_long_is_refused_with_the_reason() -> None:
    longest = "/" + "é" * ((2048 - len("file:///")) // len("%C3%A9"))
    assert len(uri_of(longest)) == 2048
    assert path_of(with_uris({"reference": longest}).spec["reference"]) == longest
    with pytest.raises(
        StatusError, match=r"^distorted: as a URI, the path has 2,054 characters, and at most 2,048"
    ) as error:
        with_uris({"reference": "/a", "distorted": longest + "é"})
    assert error.value.code == "INVALID_ARGUMENT"


def test_a_path_given_twice_must_be_the_same() -> None:
    twice = job_spec("/a", "/b", "", "", '{"reference": "/a"}')
    assert (twice.spec["reference"], twice.spec["distorted"]) == ("file:///a", "file:///b")
    with pytest.raises(StatusError, match="differ"):
        job_spec("/a", "/b", "", "", '{"reference": "/b"}')
