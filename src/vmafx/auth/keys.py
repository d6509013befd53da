"""KeyAccess: callers known by API keys in a file, which is read again when it changes."""

import hashlib
import re
from collections.abc import Callable
from pathlib import Path

from vmafx.auth.access import Caller
from vmafx.auth.cache import FailureLimiter
from vmafx.auth.credentials import CallerCredentials, host_of
from vmafx.clock import loop_time
from vmafx.http.errors import StatusError
from vmafx.logs import log

MIN_KEY = 16  # characters
MAX_FAILURES, FAILURE_DECAY, MAX_ADDRESSES = 20, 1.0, 8192  # wrong keys per address, the seconds each counts
CHECK_INTERVAL = 1.0  # seconds between looks at the file
_LINE = re.compile(r"([A-Za-z0-9._@-]{1,100})\s+([A-Za-z0-9._~+/-]{16,512}={0,2})")  # keys as RFC 6750 writes them


class InvalidKeys(Exception):
    """The file cannot be read, or is malformed. The message has no key."""


class KeyAccess:
    """Every known caller may do everything. Keys are compared by their digests, which are all that is kept of them."""

    def __init__(self, path: Path, now: Callable[[], float] = loop_time) -> None:
        self._path, self._now = path, now
        self._version, self._keys = _version(path), _read(path)
        self._checked_at = float("-inf")
        self._failures: FailureLimiter[str] = FailureLimiter(MAX_FAILURES, FAILURE_DECAY, now, MAX_ADDRESSES)

    def known_user(self, credentials: CallerCredentials) -> str:
        return self._keys.get(_digest(credentials.token), "") if credentials.token else ""

    async def authenticate(self, credentials: CallerCredentials) -> Caller:
        self._read_again()
        if user := self.known_user(credentials):
            return Caller(user)
        address = host_of(credentials.peer)
        if self._failures.is_limited(address):
            raise StatusError("RESOURCE_EXHAUSTED", "too many wrong API keys from your address; try again later")
        if not credentials.token:
            raise StatusError("UNAUTHENTICATED", "an API key is required: `Authorization: Bearer KEY`")
        self._failures.record(address)
        raise StatusError("UNAUTHENTICATED", "the API key is not valid")

    async def authorize(
        self,
        credentials: CallerCredentials,
        verb: str,
        resource: str,
        namespace: str,
        name: str = "",
        subresource: str = "",
    ) -> Caller:
        return await self.authenticate(credentials)

    def _read_again(self) -> None:
        """A file that is malformed while it is being edited changes nothing."""
        now = self._now()
        if now - self._checked_at < CHECK_INTERVAL:
            return
        self._checked_at = now
        try:
            version = _version(self._path)
            if version == self._version:
                return
            self._version = version  # a malformed file is logged once
            self._keys = _read(self._path)
            log.info("API keys read again", keys=len(self._keys))
        except InvalidKeys as error:
            log.error("cannot read the API keys; those from before stay valid", error=str(error))


def _version(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise InvalidKeys(f"cannot read the API keys in {path}: {error.strerror}") from error
    return status.st_mtime_ns, status.st_ino, status.st_size


def _read(path: Path) -> dict[bytes, str]:
    """Names by the digest of their key. Empty lines and those that start with # are skipped."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidKeys(f"cannot read the API keys in {path}: {reason}") from error
    keys: dict[bytes, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        found = _LINE.fullmatch(text)
        if found is None:
            expected = f"write NAME KEY, with a key of at least {MIN_KEY} letters, digits or ._~+/-"
            raise InvalidKeys(f"{path}, line {number}: {expected}")
        keys[_digest(found[2])] = found[1]
    if not keys:
        raise InvalidKeys(f"{path} has no API key; write a line NAME KEY for each caller")
    return keys


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="replace")).digest()
