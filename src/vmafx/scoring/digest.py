"""What a clip's bytes are, as one number."""

import asyncio
import hashlib
import os

from vmafx.scoring.media.opened import Opened


async def sha256(opened: Opened) -> str:
    """Beside other work: hashing does not hold the interpreter."""
    return await asyncio.to_thread(_sha256, opened.again())


def _sha256(fd: int) -> str:
    with os.fdopen(fd, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
