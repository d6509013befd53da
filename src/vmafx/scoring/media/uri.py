"""Clip URIs: the supported schemes, one row each; parsing, and what of a URI may be shown."""

import importlib
import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from vmafx.scoring.errors import BadInput, InputPart, NodeFault
from vmafx.tasks import in_thread
from vmafx.text import printable

if TYPE_CHECKING:  # they import this module
    from vmafx.scoring.media.policy import MediaPolicy
    from vmafx.scoring.media.staging import StagedFile

_NEVER_IN_A_URL = re.compile(r"[\x00-\x20\x7f\\]")


class Location(msgspec.Struct, frozen=True):
    """Where a clip lies. `target` is what to open: a path, a URL, or BUCKET/KEY."""

    scheme: str
    target: str
    shown: str  # fit for logs and results: without user, password, query and fragment


class MalformedUri(ValueError):
    """Its text says what is wrong, without any of the URI."""


class SchemeModule(Protocol):
    """What a scheme's module has."""

    async def fetch(self, place: Location, staging: "StagedFile") -> None: ...

    async def put(self, place: Location, content: bytes, policy: "MediaPolicy") -> None: ...


class Scheme(msgspec.Struct, frozen=True):
    """How the clips of a scheme are named, fetched and written."""

    name: str
    parse: Callable[[str, str, str], Location]  # the URI, its scheme in lower case, and what follows ://
    module: str  # is a Transfer; imported when needed: who scores files pays for no HTTP client
    extra: str = ""  # of vmafx, that has to be installed
    package: str = ""  # that comes with the extra
    in_place: bool = False  # opened where it lies, and never fetched

    def is_installed(self) -> bool:
        return not self.package or find_spec(self.package) is not None

    async def transfer(self) -> SchemeModule:
        try:
            return cast("SchemeModule", await in_thread(importlib.import_module, self.module))
        except ImportError:
            if not self.extra:
                raise
            raise NodeFault(f"{self.name}:// needs `pip install 'vmafx[{self.extra}]'`") from None


def path_location(path: str, shown: str) -> Location:
    if not path:
        raise MalformedUri("the name is empty; give a path or a URI")
    if "\0" in path:
        raise MalformedUri("a path cannot hold a NUL character")
    return Location("file", path, shown)


def _file(uri: str, _scheme: str, rest: str) -> Location:
    host, slash, path = rest.partition("/")
    if host.lower() not in {"", "localhost"}:
        raise MalformedUri("a file:// URI names no other host; write file:///PATH")
    if not slash or not path:
        raise MalformedUri("there is no path in it; write file:///PATH")
    if "?" in path or "#" in path:
        raise MalformedUri("a file:// URI has no query; write %3F for '?' and %23 for '#'")
    return path_location(os.fsdecode(b"/" + unquote_to_bytes(path)), printable(uri))


def _url(url: str, scheme: str, _rest: str) -> Location:
    if _NEVER_IN_A_URL.search(url):
        raise MalformedUri("a URL holds no spaces, backslashes or control characters; write %20 for a space")
    try:
        parts = urlsplit(url)
        name, port = parts.hostname, parts.port
    except ValueError:  # its text shows the URL
        raise MalformedUri("its host or port makes no sense") from None
    if not name or port == 0:
        raise MalformedUri("there is no host in it")
    host = parts.netloc.rpartition("@")[2]
    return Location(scheme, url, printable(f"{scheme}://{host}{parts.path}"))


def _object(_uri: str, scheme: str, rest: str) -> Location:
    bucket, _, key = rest.partition("/")
    if "@" in bucket:
        raise MalformedUri("credentials do not belong into it; set them in the environment")
    if not bucket or not key:
        raise MalformedUri(f"write {scheme}://BUCKET/KEY")
    public = re.split(r"[?#]", rest, maxsplit=1)[0]
    return Location(scheme, rest, printable(f"{scheme}://{public}"))


SCHEMES: dict[str, Scheme] = {
    row.name: row
    for row in (
        Scheme("file", _file, "vmafx.scoring.media.local", in_place=True),
        Scheme("http", _url, "vmafx.scoring.media.web"),
        Scheme("https", _url, "vmafx.scoring.media.web"),
        Scheme("s3", _object, "vmafx.scoring.media.s3", extra="s3", package="s3fs"),
        Scheme("gs", _object, "vmafx.scoring.media.gs", extra="gcs", package="gcsfs"),
    )
}


_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_LIKE_A_URI = re.compile(r"\W*https?:|.*://", re.DOTALL | re.IGNORECASE)


def locate(uri: str, part: InputPart) -> Location:
    try:
        return _parse(uri)
    except MalformedUri as error:
        raise BadInput(part, f"{shown(uri)} is no clip: {error}" if uri else str(error)) from None


def shown(uri: str) -> str:
    """What of a URI may be shown. Of one that cannot be understood, only the scheme: its parts may be anything."""
    try:
        return _parse(uri).shown
    except MalformedUri:
        found = _URI.match(uri)
        return f"{found[1].lower()}://..." if found else _cut(uri)


def _parse(uri: str) -> Location:
    found = _URI.fullmatch(uri)
    if found is None:
        return path_location(uri, _cut(uri) if _LIKE_A_URI.match(uri) else printable(uri))
    name, rest = found[1].lower(), found[2]
    scheme = SCHEMES.get(name)
    return scheme.parse(uri, name, rest) if scheme else Location(name, "", f"{name}://...")  # for the policy to refuse


def _cut(text: str) -> str:
    """Of a URI with a slip in it, such as a space before it, which makes it a path."""
    return printable(re.sub(r"/[^/]*@", "/", re.split(r"[?#]", text, maxsplit=1)[0]))
