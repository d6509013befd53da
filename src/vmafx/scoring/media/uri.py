"""From the text that names a clip to the place where it lies, and to what of it may be shown."""

import re

from vmafx.plain import printable
from vmafx.scoring.errors import BadInput, Part
from vmafx.scoring.media.schemes import SCHEMES, Malformed, Place, path_place

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_LIKE_A_URI = re.compile(r"\W*https?:|.*://", re.DOTALL | re.IGNORECASE)


def locate(uri: str, part: Part) -> Place:
    try:
        return _parse(uri)
    except Malformed as error:
        raise BadInput(part, f"{shown(uri)} is no clip: {error}" if uri else str(error)) from None


def shown(uri: str) -> str:
    """What of a URI may be shown. Of one that cannot be understood, only the scheme: its parts may be anything."""
    try:
        return _parse(uri).shown
    except Malformed:
        found = _URI.match(uri)
        return f"{found[1].lower()}://..." if found else _cut(uri)


def _parse(uri: str) -> Place:
    found = _URI.fullmatch(uri)
    if found is None:
        return path_place(uri, _cut(uri) if _LIKE_A_URI.match(uri) else printable(uri))
    name, rest = found[1].lower(), found[2]
    scheme = SCHEMES.get(name)
    return scheme.parse(uri, name, rest) if scheme else Place(name, "", f"{name}://...")  # for the policy to refuse


def _cut(text: str) -> str:
    """Of a URI with a slip in it, such as a space before it, which makes it a path."""
    return printable(re.sub(r"/[^/]*@", "/", re.split(r"[?#]", text, maxsplit=1)[0]))
