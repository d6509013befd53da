"""What a clip's bytes are, as one number."""

import hashlib
import threading
from io import FileIO

from vmafx.scoring.media.opened import Opened
from vmafx.threads import in_thread

BLOCK = 1 << 20


async def sha256(opened: Opened) -> str:
    """Beside other work: hashing does not hold the interpreter. Cancelled, it stops at once."""
    stop = threading.Event()
    with FileIO(opened.again()) as file:
        return await in_thread(_sha256, file, stop, hurry=stop.set)


def _sha256(file: FileIO, stop: threading.Event) -> str:
    digest = hashlib.sha256()
    while not stop.is_set() and (block := file.read(BLOCK)):
        digest.update(block)
    return digest.hexdigest()
