"""From the text that names a clip to the place where it lies, and to what of it may be shown."""

import os
import re
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from vmafx.scoring.errors import BadInput, Part

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_LIKE_A_URI = re.compile(r"\W*https?:|.*://", re.DOTALL | re.IGNORECASE)
_NEVER_IN_A_URL = re.compile(r"[\x00-\x20\x7f\\]")


class Place(msgspec.Struct, frozen=True):
    """Where a clip lies. `target` is what to open: a path, a URL, or BUCKET/KEY."""

    scheme: str
    target: str
    shown: str  # fit for logs and results: without user, password, query and fragment


class Malformed(ValueError):
    """Its text says what is wrong, without any of the URI."""


def locate(uri: str, part: Part) -> Place:
    try:
        return _parse(uri)
    except Malformed as error:
        raise BadInput(part, f"{shown(uri)} is no clip: {error}") from None


def shown(uri: str) -> str:
    """What of a URI may be shown. Of one that cannot be understood, only the scheme: its parts may be anything."""
    try:
        return _parse(uri).shown
    except Malformed:
        found = _URI.match(uri)
        return f"{found[1].lower()}://..." if found else _cut(uri)


def printable(text: str) -> str:
    """On one line, and in Unicode that can be encoded: file names need be neither."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def _cut(text: str) -> str:
    """Of a URI with a slip in it, such as a space before it, which makes it a path."""
    return printable(re.sub(r"/[^/]*@", "/", re.split(r"[?#]", text, maxsplit=1)[0]))


def _parse(uri: str) -> Place:
    found = _URI.fullmatch(uri)
    if found is None:
        return _path(uri, _cut(uri) if _LIKE_A_URI.match(uri) else printable(uri))
    scheme, rest = found[1].lower(), found[2]
    match scheme:
        case "file":
            return _file(uri, rest)
        case "http" | "https":
            return _url(uri, scheme)
        case "s3" | "gs":
            return _object(scheme, rest)
    return Place(scheme, "", f"{scheme}://...")  # for the policy to refuse


def _path(path: str, text: str) -> Place:
    if not path:
        raise Malformed("the name is empty; give a path or a URI")
    if "\0" in path:
        raise Malformed("a path cannot hold a NUL character")
    return Place("file", path, text)


def _file(uri: str, rest: str) -> Place:
    host, slash, path = rest.partition("/")
    if host.lower() not in {"", "localhost"}:
        raise Malformed("a file:// URI names no other host; write file:///PATH")
    if not slash or not path:
        raise Malformed("there is no path in it; write file:///PATH")
    if "?" in path or "#" in path:
        raise Malformed("a file:// URI has no query; write %3F for '?' and %23 for '#'")
    return _path(os.fsdecode(b"/" + unquote_to_bytes(path)), printable(uri))


def _url(url: str, scheme: str) -> Place:
    if _NEVER_IN_A_URL.search(url):
        raise Malformed("a URL holds no spaces, backslashes or control characters; write %20 for a space")
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError:  # its text shows the URL
        raise Malformed("its host or port makes no sense") from None
    if not name or port == 0:
        raise Malformed("there is no host in it")
    host = parts.netloc.rpartition("@")[2]
    return Place(scheme, url, printable(f"{scheme}://{host}{parts.path}"))


def _object(scheme: str, rest: str) -> Place:
    bucket, _, key = rest.partition("/")
    if "@" in bucket:
        raise Malformed("credentials do not belong into it; set them in the environment")
    if not bucket or not key:
        raise Malformed(f"write {scheme}://BUCKET/KEY")
    public = re.split(r"[?#]", rest, maxsplit=1)[0]
    return Place(scheme, rest, printable(f"{scheme}://{public}"))
