"""URI parsing, and display names without credentials."""

import string
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.uri import display_name, locate

SECRETS = st.text(string.ascii_letters + string.digits + "%/+=&:@!$é", min_size=1, max_size=30).map("S3CRET".__add__)


def location_or_error(uri: str) -> str:
    try:
        return locate(uri, "reference").display_name
    except BadInput as error:
        return str(error)


@pytest.mark.parametrize(
    "path",
    [
        "a.mp4",
        "-y",
        "a:b.mp4",
        "C:\\a.mp4",
        "C:/a.mp4",
        "100%25.mp4",
        "file:a",
        "s3:a",
        "a b?c#d.mp4",
        "/x/../y",
        "1://a",
    ],
)
def test_text_that_is_not_a_uri_is_a_path(path: str) -> None:
    location = locate(path, "reference")
    assert (location.scheme, location.target, location.display_name) == ("file", path, path)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a/b%20c.mp4", "/a/b c.mp4"),
        ("FILE://LOCALHOST/a", "/a"),
        ("file:///100%2525", "/100%25"),
        ("file:///%ff", "/\udcff"),
        ("file:////a", "//a"),
        ("file:///a%23b%3Fc", "/a#b?c"),
    ],
)
def test_a_file_uri_is_percent_decoded(uri: str, path: str) -> None:
    location = locate(uri, "reference")
    assert (location.scheme, location.target) == ("file", path)


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("", "empty"),
        ("a\0b", "NUL"),
        ("file:///a%00b", "NUL"),
        ("file://other/a", "another host"),
        ("file://", "no path"),
        ("file:///", "no path"),
        ("file:///a?b", "%3F"),
        ("http://", "no host"),
        ("http:///a", "no host"),
        ("http://host:99999/a", "host or port"),
        ("http://host:x/a", "host or port"),
        ("http://[::1/a", "host or port"),
        ("http://host/a b", "%20"),
        ("http://host\\@evil/a", "backslashes"),
        ("http://host/a\r\nX: y", "control"),
        ("s3://", "s3://BUCKET/KEY"),
        ("s3://bucket", "s3://BUCKET/KEY"),
        ("gs://bucket/", "gs://BUCKET/KEY"),
        ("s3:///key", "s3://BUCKET/KEY"),
        ("s3://key:secret@bucket/key", "credentials"),
    ],
)
def test_a_malformed_uri_is_refused_with_a_reason(uri: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        locate(uri, "distorted")
    assert refused.value.part == "distorted"


@pytest.mark.parametrize(
    ("uri", "public"),
    [
        ("HTTPS://user:pw@host:8443/a/b.mp4?X-Amz-Signature=1#t", "https://host:8443/a/b.mp4"),
        ("http://u@h@host/a", "http://host/a"),
        ("http://[2001:db8::1]:80/a", "http://[2001:db8::1]:80/a"),
        ("s3://bucket/dir@2x/a.mp4?versionId=1", "s3://bucket/dir@2x/a.mp4"),
        ("gs://bucket/a#1", "gs://bucket/a"),
        ("http://user:pa/ss@host/a", "http://..."),
        ("ftp://user:pw@host/a", "ftp://..."),
        ("\n", "\\n"),
        ("a\udcff", "a\\udcff"),
        (" https://user:pw@host/a?token=1", " https://host/a"),
        ("https:/user:pw@host/a?token=1", "https:/host/a"),
    ],
)
def test_display_names_have_no_credentials_queries_or_fragments(uri: str, public: str) -> None:
    assert display_name(uri) == public


@given(
    scheme=st.sampled_from(["http", "https", "s3", "gs", "ftp"]),
    user=SECRETS,
    password=SECRETS,
    query=SECRETS,
    fragment=SECRETS,
)
def test_no_credential_is_ever_displayed(scheme: str, user: str, password: str, query: str, fragment: str) -> None:
    login = f"{quote(user, safe='')}:{quote(password, safe='')}"
    for uri in (
        f"{scheme}://{login}@host.example/clip.mp4?sig={query}#{fragment}",
        f"{scheme}://{login}@host.example:notaport/clip.mp4?sig={query}",
        f" {scheme}://{login}@host.example/clip.mp4?sig={query}",
    ):
        assert "S3CRET" not in display_name(uri)
        assert "S3CRET" not in location_or_error(uri)


@given(st.text(st.characters(exclude_categories=[]), max_size=60))
def test_display_names_are_one_printable_line(text: str) -> None:
    line = display_name(text)
    line.encode()
    assert line.isprintable()
