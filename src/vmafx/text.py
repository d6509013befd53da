"""Text from elsewhere, made safe to print."""

MAX_LENGTH = 300  # characters


def one_line(text: str, most: int = MAX_LENGTH) -> str:
    """On one line, without what a terminal would obey, and no longer than need be."""
    words = " ".join("".join(one if one.isprintable() else " " for one in text[: 4 * most]).split())
    return words if len(words) <= most else f"{words[: most - 1]}…"


def printable(text: str) -> str:
    """On one line, and in Unicode that can be encoded: file names need be neither. Nothing is left out."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
