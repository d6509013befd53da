"""What a clip's bytes are, as one number."""

import asyncio
import hashlib
import os
import threading

from vmafx.scoring.media.opened import Opened

BLOCK = 1 << 20


async def sha256(opened: Opened) -> str:
    """Beside other work: hashing does not hold the interpreter. Cancelled, it stops at once."""
    stop = threading.Event()
    try:
        return await asyncio.to_thread(_sha256, opened.again(), stop)
    finally:
        stop.set()


def _sha256(fd: int, stop: threading.Event) -> str:
    digest = hashlib.sha256()
    with os.fdopen(fd, "rb", 0) as file:
        while not stop.is_set() and (block := file.read(BLOCK)):
            digest.update(block)
    return digest.hexdigest()
