"""The URI schemes of clips, URI parsing, and display names without credentials."""

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
    from vmafx.scoring.media.staging import FetchProgress, StagedFile

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_LIKE_A_URI = re.compile(r"\W*https?:|.*://", re.DOTALL | re.IGNORECASE)
_REFERENCE = re.compile(
    r"([a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[0-9]{1,5})?"  # registry
    r"(/[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*)+@sha256:[0-9a-f]{64}"
)
MAX_REFERENCE = 1024  # characters
_FORBIDDEN_IN_URL = re.compile(r"[\x00-\x20\x7f\\]")


class Location(msgspec.Struct, frozen=True):
    """A parsed path or URI. `target` is what to open: a path, a URL, or BUCKET/KEY."""

    scheme: str
    target: str
    display_name: str  # for logs and results: without user, password, query and fragment


class MalformedUri(ValueError):
    """The message says what is wrong and contains no part of the URI."""


class SchemeModule(Protocol):
    """The functions of a scheme's module."""

    async def fetch(self, location: Location, staging: "StagedFile") -> None: ...

    async def put(self, location: Location, content: bytes, policy: "MediaPolicy") -> None: ...


class StorageModule(SchemeModule, Protocol):
    """The functions of a scheme that also takes files, such as clips."""

    async def put_file(
        self, location: Location, fd: int, policy: "MediaPolicy", progress: "FetchProgress | None"
    ) -> None: ...

    async def stored_size(self, location: Location, policy: "MediaPolicy") -> int | None: ...


class Scheme(msgspec.Struct, frozen=True):
    """How URIs of a scheme are parsed, downloaded and written."""

    name: str
    parse: Callable[[str, str, str], Location]  # from the URI, its scheme in lower case, and the text after ://
    module: str  # a SchemeModule, imported on use: scoring local files must not load an HTTP client
    extra: str = ""  # of vmafx, that has to be installed
    package: str = ""  # installed by the extra
    in_place: bool = False  # opened without a download
    takes_files: bool = False  # its module is a StorageModule

    def is_installed(self) -> bool:
        return not self.package or find_spec(self.package) is not None

    async def load_module(self) -> SchemeModule:
        try:
            return cast("SchemeModule", await in_thread(importlib.import_module, self.module))
        except ImportError:
            if not self.extra:
                raise
            raise NodeFault(f"{self.name}:// needs `pip install 'vmafx[{self.extra}]'`") from None


def locate(uri: str, part: InputPart) -> Location:
    """Parses a path or URI. Raises BadInput if it is malformed."""
    try:
        return _parse(uri)
    except MalformedUri as error:
        raise BadInput(
            part, f"{display_name(uri)} is not a valid path or URI: {error}" if uri else str(error)
        ) from None


def display_name(uri: str) -> str:
    """The URI without credentials, query and fragment; of a malformed URI only the scheme."""
    try:
        return _parse(uri).display_name
    except MalformedUri:
        match = _URI.match(uri)
        return f"{match[1].lower()}://..." if match else _without_credentials(uri)


def _parse(uri: str) -> Location:
    match = _URI.fullmatch(uri)
    if match is None:
        return _path_location(uri, _without_credentials(uri) if _LIKE_A_URI.match(uri) else printable(uri))
    name, rest = match[1].lower(), match[2]
    scheme = SCHEMES.get(name)
    return scheme.parse(uri, name, rest) if scheme else Location(name, "", f"{name}://...")  # the policy refuses it


def _without_credentials(text: str) -> str:
    """For a path that may be a mistyped URI, such as one with a leading space."""
    return printable(re.sub(r"/[^/]*@", "/", re.split(r"[?#]", text, maxsplit=1)[0]))


def _path_location(path: str, name: str) -> Location:
    if not path:
        raise MalformedUri("the name is empty; give a path or a URI")
    if "\0" in path:
        raise MalformedUri("a path cannot contain a NUL character")
    return Location("file", path, name)


def _parse_file(uri: str, _scheme: str, rest: str) -> Location:
    host, slash, path = rest.partition("/")
    if host.lower() not in {"", "localhost"}:
        raise MalformedUri("a file:// URI cannot name another host; write file:///PATH")
    if not slash or not path:
        raise MalformedUri("it has no path; write file:///PATH")
    if "?" in path or "#" in path:
        raise MalformedUri("a file:// URI cannot have a query; write %3F for '?' and %23 for '#'")
    return _path_location(os.fsdecode(b"/" + unquote_to_bytes(path)), printable(uri))


def _parse_url(url: str, scheme: str, _rest: str) -> Location:
    if _FORBIDDEN_IN_URL.search(url):
        raise MalformedUri("a URL cannot contain spaces, backslashes or control characters; write %20 for a space")
    try:
        parts = urlsplit(url)
        hostname, port = parts.hostname, parts.port
    except ValueError:  # its message contains the URL
        raise MalformedUri("its host or port is invalid") from None
    if not hostname or port == 0:
        raise MalformedUri("it has no host")
    host = parts.netloc.rpartition("@")[2]
    return Location(scheme, url, printable(f"{scheme}://{host}{parts.path}"))


def _parse_object(_uri: str, scheme: str, rest: str) -> Location:
    bucket, _, key = rest.partition("/")
    if "@" in bucket:
        raise MalformedUri("it must not contain credentials; set them in the environment")
    if not bucket or not key:
        raise MalformedUri(f"write {scheme}://BUCKET/KEY")
    public = re.split(r"[?#]", rest, maxsplit=1)[0]
    return Location(scheme, rest, printable(f"{scheme}://{public}"))


def _parse_reference(_uri: str, scheme: str, rest: str) -> Location:
    if len(rest) > MAX_REFERENCE or not _REFERENCE.fullmatch(rest):
        raise MalformedUri(
            "a model in a registry is named by its digest, so that scores can be reproduced; write"
            " oci://REGISTRY/REPOSITORY@sha256:DIGEST (`oras resolve REGISTRY/REPOSITORY:TAG` prints it)"
        )
    return Location(scheme, rest, f"{scheme}://{rest}")


SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme("file", _parse_file, "vmafx.scoring.media.local", in_place=True, takes_files=True),
        Scheme("http", _parse_url, "vmafx.scoring.media.web"),
        Scheme("https", _parse_url, "vmafx.scoring.media.web"),
        Scheme("s3", _parse_object, "vmafx.scoring.media.s3", extra="s3", package="s3fs", takes_files=True),
        Scheme("gs", _parse_object, "vmafx.scoring.media.gs", extra="gcs", package="gcsfs", takes_files=True),
        Scheme("oci", _parse_reference, "vmafx.scoring.media.oci"),
    )
}
