"""Other people's words, fit to be shown."""

MOST = 300  # characters


def plain(text: str, most: int = MOST) -> str:
    """On one line, without what a terminal would obey, and no longer than need be."""
    words = " ".join("".join(one if one.isprintable() else " " for one in text[: 4 * most]).split())
    return words if len(words) <= most else f"{words[: most - 1]}…"
