"""WorkFolder: finished encodes by the digest of what they were made from, so that none is made twice."""

import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import msgspec

from vmafx.atomic_write import write_atomic
from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.tasks import in_thread
from vmafx.text import printable
from vmafx.tune.encoding import EncodeFacts, EncodeOptions
from vmafx.tune.frames import SourceFrames

MAX_BYTES = 20 << 30
REVISION = 1  # increased when a change in vmafx changes encodes
RECORD, PARTIAL = ".json", ".part"
# Other files in the folder are not ours, and are left alone.
FINISHED = re.compile(r"[0-9a-f]{64}\.(?!json$)[a-z0-9]+")
UNFINISHED = re.compile(r"\.[0-9a-f]{64}-(?P<pid>[0-9]+)-[0-9a-f]{8}\.[a-z0-9]+\.part")


def default_work_folder() -> Path:
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vmafx" / "tune"
    except RuntimeError:
        raise NodeFault("this user has no home folder; choose a folder for encodes with --work") from None


class KeptEncode(msgspec.Struct, frozen=True):
    """An encode in the folder."""

    path: Path
    facts: EncodeFacts
    resumed: bool  # made by an earlier run


def encode_key(source_digest: str, frames: SourceFrames, options: EncodeOptions, tool: str, part: str = "") -> str:
    """The same key for the same content, settings and tools. `part` is which part of the source is encoded."""
    parts = {
        "source": source_digest,
        "part": part,
        "conversion": frames.conversion,
        "rate": frames.rate_text,
        "pixelAspect": str(frames.pixel_aspect),
        "colours": frames.colours,
        "encoder": options.encoder.name,
        "options": options.options,
        "tool": tool,
        "revision": REVISION,
    }
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


class WorkFolder:
    """A folder of encodes. Each has a record, which is written last: an encode without one is not finished."""

    def __init__(self, folder: Path | None = None, max_bytes: int = MAX_BYTES) -> None:
        self.folder, self._max_bytes = (folder or default_work_folder()).absolute(), max_bytes

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[None]:
        """Open the folder. Until the context ends, nobody else who opens it deletes anything."""
        with ExitStack() as stack:
            await in_thread(self.open)
            await in_thread(stack.enter_context, self._locked(fcntl.LOCK_SH))
            yield

    def open(self) -> None:
        """Create the folder. Unless it is in use, delete unfinished encodes, and above the limit those unused longest.

        Raises ScoringError.
        """
        try:
            str(self.folder).encode()
        except UnicodeEncodeError:
            raise BadInput("options", f"the name of the folder {printable(str(self.folder))} is not UTF-8") from None
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with suppress(BlockingIOError), self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
                self._prune()
        except OSError as error:
            raise NodeFault(f"the folder {self.folder} for encodes cannot be used: {error.strerror}") from error

    @contextmanager
    def _locked(self, operation: int) -> Iterator[None]:
        """Raises BlockingIOError if others have a lock that this one excludes. Network filesystems may have none."""
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(fd, operation)
            except OSError as error:
                if isinstance(error, BlockingIOError):
                    raise
            yield
        finally:
            os.close(fd)

    async def get(self, key: str, container: str) -> KeptEncode | None:
        """The encode with this key, if there is one."""
        path = self.folder / f"{key}.{container}"
        facts = await in_thread(self._facts, path)
        return None if facts is None else KeptEncode(path, facts, resumed=True)

    async def get_or_make(self, key: str, container: str, make: Callable[[Path], Awaitable[EncodeFacts]]) -> KeptEncode:
        """The encode with this key; `make` writes it to a path if there is none."""
        if (kept := await self.get(key, container)) is not None:
            return kept
        path = self.folder / f"{key}.{container}"
        partial = self.folder / f".{key}-{os.getpid()}-{secrets.token_hex(4)}.{container}{PARTIAL}"
        try:
            facts = await make(partial)
            if (other := await self.get(key, container)) is not None:  # another process was first, and may be using it
                return other
            await in_thread(self._finish, partial, path, facts)
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
        return KeptEncode(path, facts, resumed=False)

    def _facts(self, path: Path) -> EncodeFacts | None:
        try:
            facts = msgspec.json.decode(path.with_suffix(RECORD).read_bytes(), type=EncodeFacts)
            if path.stat().st_size != facts.bytes or not facts.frames:
                return None
            os.utime(path)
        except (OSError, msgspec.DecodeError):
            return None
        return facts

    def _finish(self, partial: Path, path: Path, facts: EncodeFacts) -> None:
        try:
            partial.replace(path)
            write_atomic(path.with_suffix(RECORD), msgspec.json.encode(facts))
        except OSError as error:
            raise NodeFault(f"cannot write to {self.folder}: {error.strerror}") from error

    def _prune(self) -> None:
        found = []
        for path in self.folder.iterdir():
            unfinished = UNFINISHED.fullmatch(path.name)
            if unfinished and not Path("/proc", unfinished["pid"]).exists():  # its process is gone
                path.unlink(missing_ok=True)
            if FINISHED.fullmatch(path.name):
                with suppress(FileNotFoundError):  # another process has deleted it
                    found.append((path.stat(), path))
        size = sum(status.st_size for status, _ in found)
        for status, path in sorted(found, key=lambda entry: entry[0].st_mtime_ns):
            if size <= self._max_bytes:
                return
            path.with_suffix(RECORD).unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            size -= status.st_size
