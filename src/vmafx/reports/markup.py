"""Elements; the one place where text becomes HTML.

Whatever is not `Html` is escaped. Nothing but our own constants is made `Html` by hand, so that no clip's name can
become markup, wherever it is put.
"""

import html
import re

EMPTY = frozenset({"img", "link", "meta"})
CLOSED = frozenset({"line", "path", "rect"})  # of SVG, where nothing is ever inside
# What would break the encoding, or make a name look like another one: controls, lone surrogates, changes of direction.
UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def showable(text: str) -> str:
    """The text with a mark in place of each character that no page or picture should have."""
    return UNFIT.sub("\ufffd", text)


def escape(text: str) -> Html:
    return Html(html.escape(showable(text)))


def join(*parts: str | None) -> Html:
    """One after the other; None is nothing."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts if part is not None))


def tag(name: str, /, *children: str | None, **attributes: str | float | None) -> Html:
    """An element. `class_` is class, `aria_label` is aria-label; an attribute that is None is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in EMPTY:
        return Html(f"<{name}{written}>")
    if name in CLOSED:
        return Html(f"<{name}{written}/>")
    return Html(f"<{name}{written}>{join(*children)}</{name}>")
