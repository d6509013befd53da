"""HTML elements. All text becomes HTML here.

Every str that is not `Html` is escaped. Only constants are converted to `Html` directly, so that the name of a clip
never becomes markup.
"""

import html
import re

VOID_ELEMENTS = frozenset({"img", "link", "meta"})
SELF_CLOSING = frozenset({"line", "path", "rect"})  # SVG elements without children
# Characters that cannot be encoded or can disguise a name: controls, lone surrogates, changes of text direction.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")


class Html(str):
    """Text that is already HTML."""

    __slots__ = ()


def showable(text: str) -> str:
    """The text with U+FFFD in place of unsafe characters."""
    return UNSAFE.sub("\ufffd", text)


def escape(text: str) -> Html:
    return Html(html.escape(showable(text)))


def join(*parts: str | None) -> Html:
    """Concatenate the parts, escaping text; None is skipped."""
    return Html("".join(part if isinstance(part, Html) else escape(part) for part in parts if part is not None))


def tag(name: str, /, *children: str | None, **attributes: str | float | None) -> Html:
    """An element. `class_` is class, `aria_label` is aria-label; an attribute that is None is left out."""
    written_attributes = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID_ELEMENTS:
        return Html(f"<{name}{written_attributes}>")
    if name in SELF_CLOSING:
        return Html(f"<{name}{written_attributes}/>")
    return Html(f"<{name}{written_attributes}>{join(*children)}</{name}>")
