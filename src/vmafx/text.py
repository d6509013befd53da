"""Makes untrusted text safe to print on a terminal and in logs."""

MAX_LENGTH = 300  # characters


def one_line(text: str, max_length: int = MAX_LENGTH) -> str:
    """The text on one line, without control characters, truncated to `max_length` characters."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text[: 4 * max_length]).split())
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"


def printable(text: str) -> str:
    """The text with control characters and surrogates escaped, for file names; nothing is left out."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
