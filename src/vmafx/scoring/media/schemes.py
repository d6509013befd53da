"""The URI schemes: one row each. A new one takes a row here, and a module with `fetch` and `put`."""

import importlib
import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Protocol, cast
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from vmafx.plain import printable
from vmafx.scoring.errors import NodeFault
from vmafx.threads import in_thread

if TYPE_CHECKING:  # they import this module
    from vmafx.scoring.media.policy import Policy
    from vmafx.scoring.media.staging import Staging

_NEVER_IN_A_URL = re.compile(r"[\x00-\x20\x7f\\]")


class Place(msgspec.Struct, frozen=True):
    """Where a clip lies. `target` is what to open: a path, a URL, or BUCKET/KEY."""

    scheme: str
    target: str
    shown: str  # fit for logs and results: without user, password, query and fragment


class Malformed(ValueError):
    """Its text says what is wrong, without any of the URI."""


class Transfer(Protocol):
    """What a scheme's module has."""

    async def fetch(self, place: Place, staging: "Staging") -> None: ...

    async def put(self, place: Place, content: bytes, policy: "Policy") -> None: ...


class Scheme(msgspec.Struct, frozen=True):
    """How the clips of a scheme are named, fetched and written."""

    name: str
    parse: Callable[[str, str, str], Place]  # the URI, its scheme in lower case, and what follows ://
    module: str  # is a Transfer; imported when needed: who scores files pays for no HTTP client
    extra: str = ""  # of vmafx, that has to be installed
    package: str = ""  # that comes with the extra
    in_place: bool = False  # opened where it lies, and never fetched

    def is_installed(self) -> bool:
        return not self.package or find_spec(self.package) is not None

    async def transfer(self) -> Transfer:
        try:
            return cast("Transfer", await in_thread(importlib.import_module, self.module))
        except ImportError:
            if not self.extra:
                raise
            raise NodeFault(f"{self.name}:// needs `pip install 'vmafx[{self.extra}]'`") from None


def path_place(path: str, shown: str) -> Place:
    if not path:
        raise Malformed("the name is empty; give a path or a URI")
    if "\0" in path:
        raise Malformed("a path cannot hold a NUL character")
    return Place("file", path, shown)


def _file(uri: str, _scheme: str, rest: str) -> Place:
    host, slash, path = rest.partition("/")
    if host.lower() not in {"", "localhost"}:
        raise Malformed("a file:// URI names no other host; write file:///PATH")
    if not slash or not path:
        raise Malformed("there is no path in it; write file:///PATH")
    if "?" in path or "#" in path:
        raise Malformed("a file:// URI has no query; write %3F for '?' and %23 for '#'")
    return path_place(os.fsdecode(b"/" + unquote_to_bytes(path)), printable(uri))


def _url(url: str, scheme: str, _rest: str) -> Place:
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


def _object(_uri: str, scheme: str, rest: str) -> Place:
    bucket, _, key = rest.partition("/")
    if "@" in bucket:
        raise Malformed("credentials do not belong into it; set them in the environment")
    if not bucket or not key:
        raise Malformed(f"write {scheme}://BUCKET/KEY")
    public = re.split(r"[?#]", rest, maxsplit=1)[0]
    return Place(scheme, rest, printable(f"{scheme}://{public}"))


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
