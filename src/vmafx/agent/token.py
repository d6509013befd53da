"""The token that the agent shows, as it stands in a file."""

from pathlib import Path


def read_token(file: Path) -> str:
    """ValueError with what is wrong."""
    try:
        token = file.read_text().strip()
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} holds no token") from error
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"{file} holds no token")
    return token
