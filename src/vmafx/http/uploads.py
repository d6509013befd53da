"""Uploads: a body, or the parts of a form, streamed into unnamed files and hashed while they arrive.

The files exist until the context that received them ends, normally or with an error.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager

import msgspec
from aiohttp import StreamReader
from multipart import (
    MultipartError,
    MultipartSegment,
    ParserLimitReached,
    PushMultipartParser,
    parse_options_header,
)

from vmafx.clock import loop_time
from vmafx.http.errors import StatusError
from vmafx.http.limits import UPLOAD_LIMITS, UploadLimits
from vmafx.http.request import HttpRequest
from vmafx.logs import log
from vmafx.scratch import DiskFull, ScratchFile
from vmafx.tasks import in_thread
from vmafx.text import one_line

BLOCK_SIZE = 256 << 10  # bytes per write to disk; each must arrive within block_seconds
MAX_CONTENT_TYPE = 256  # characters
MAX_BOUNDARY = 70  # characters, by RFC 2046
MAX_FILENAME = 255  # characters


class UploadedFile(msgspec.Struct, frozen=True):
    """A received file. `fd` is read-only and is closed at the end of the context."""

    fd: int
    size: int
    sha256: str
    filename: str = ""  # as sent by the client: for display only, never to be opened
    content_type: str = ""


class UploadedForm(msgspec.Struct, frozen=True):
    """Fields and files by the names of their parts, which are unique."""

    fields: dict[str, str]
    files: dict[str, UploadedFile]


@asynccontextmanager
async def receive_file(request: HttpRequest, limits: UploadLimits = UPLOAD_LIMITS) -> AsyncIterator[UploadedFile]:
    """Receive the whole body as one file, whatever its type."""
    max_bytes = min(limits.file_bytes, limits.total_bytes)
    _check_length(request, max_bytes)
    async with _open_files() as stack:
        file = await _FileWriter.open(stack, limits, request.length or 0)
        async with request.body() as content:
            body = _BodyReader(content, limits, max_bytes)
            while data := await body.read():
                await file.add(data)
        yield await file.finish(content_type=request.headers.get("Content-Type", ""))


@asynccontextmanager
async def receive_form(request: HttpRequest, limits: UploadLimits = UPLOAD_LIMITS) -> AsyncIterator[UploadedForm]:
    """Receive multipart/form-data: parts with a file name are files, the others are fields in UTF-8."""
    parser = PushMultipartParser(
        _boundary(request),
        max_header_size=limits.part_header_bytes,
        max_header_count=limits.part_headers,
        max_segment_count=limits.parts,
    )
    _check_length(request, limits.total_bytes)
    async with _open_files() as stack:
        async with request.body() as content:
            body = _BodyReader(content, limits, limits.total_bytes)
            form = _FormBuilder(stack, limits, request.length or 0)
            with _form_errors(), parser:
                while data := await body.read():
                    for event in parser.parse(data):
                        await form.add(event)
        yield UploadedForm(form.fields, form.files)


@asynccontextmanager
async def _open_files() -> AsyncIterator[ExitStack]:
    """The files of an upload, closed in a thread: freeing a large file takes time."""
    stack = ExitStack()
    try:
        yield stack
    finally:
        await in_thread(stack.close)


class UploadRate:
    """How long to wait for more of a body, so that a stalled or very slow client does not hold a connection."""

    def __init__(self, limits: UploadLimits) -> None:
        self._limits = limits
        self._block_bytes, self._block_seconds = BLOCK_SIZE, limits.block_seconds  # left of the current block

    def timeout(self) -> float:
        return min(self._limits.stall_seconds, self._block_seconds)

    def received(self, size: int, seconds: float) -> None:
        """Count `size` bytes that took `seconds` to arrive, without the time spent on writing them."""
        self._block_bytes, self._block_seconds = self._block_bytes - size, self._block_seconds - seconds
        if self._block_bytes <= 0:
            self._block_bytes, self._block_seconds = BLOCK_SIZE, self._limits.block_seconds


class _BodyReader:
    """Reads a body within the limits on its size and rate."""

    def __init__(self, content: StreamReader, limits: UploadLimits, max_bytes: int) -> None:
        self._content, self._max_bytes, self._size = content, max_bytes, 0
        self._rate = UploadRate(limits)

    async def read(self) -> bytes:
        """Return the bytes that have arrived; none at the end."""
        started = loop_time()
        try:
            async with asyncio.timeout(self._rate.timeout()):
                data = await self._content.readany()
        except TimeoutError:
            raise StatusError("INVALID_ARGUMENT", "the body arrives too slowly", status=408) from None
        self._rate.received(len(data), loop_time() - started)
        self._size += len(data)
        if self._size > self._max_bytes:
            raise _too_large("the upload", self._max_bytes)
        return data


class _FileWriter:
    """Writes a file in blocks: a call into a thread for every small piece would be slow."""

    def __init__(self, scratch: ScratchFile, max_bytes: int) -> None:
        self._scratch, self._max_bytes = scratch, max_bytes
        self._buffer = bytearray()

    @classmethod
    async def open(cls, stack: ExitStack, limits: UploadLimits, expected: int) -> "_FileWriter":
        """Fails at once if the disk has no room for the `expected` bytes, before the client sends them."""

        def open_scratch() -> ScratchFile:
            folder = limits.folder or tempfile.gettempdir()
            scratch = ScratchFile(folder, limits.reserve_bytes, linkable=limits.linkable)
            stack.callback(scratch.close)  # in the thread: a cancellation right now must not leak the descriptor
            scratch.require(expected)
            return scratch

        with _disk_errors():
            return cls(await in_thread(open_scratch), limits.file_bytes)

    async def add(self, data: bytes) -> None:
        if self._scratch.size + len(self._buffer) + len(data) > self._max_bytes:
            raise _too_large("a file", self._max_bytes)
        self._buffer += data
        if len(self._buffer) >= BLOCK_SIZE:
            await self._write()

    async def finish(self, filename: str = "", content_type: str = "") -> UploadedFile:
        await self._write()
        fd = await in_thread(self._scratch.seal)
        return UploadedFile(fd, self._scratch.size, self._scratch.digest, filename, content_type)

    async def _write(self) -> None:
        block, self._buffer = self._buffer, bytearray()
        with _disk_errors():
            await in_thread(self._scratch.write, block)


class _FormBuilder:
    """Builds a form from the parser's events: the headers of a part, its data, None at its end."""

    def __init__(self, stack: ExitStack, limits: UploadLimits, expected: int) -> None:
        self.fields: dict[str, str] = {}
        self.files: dict[str, UploadedFile] = {}
        self._stack, self._limits, self._expected = stack, limits, expected
        self._part: MultipartSegment = None
        self._file: _FileWriter | None = None
        self._field = bytearray()

    async def add(self, event: MultipartSegment | bytes | None) -> None:
        if isinstance(event, MultipartSegment):
            await self._start_part(event)
        elif event is None:
            await self._end_part()
        elif self._file is not None:
            await self._file.add(event)
        else:
            self._field += event
            if len(self._field) > self._limits.field_bytes:
                raise _too_large("a field", self._limits.field_bytes)

    async def _start_part(self, part: MultipartSegment) -> None:
        name = part.name
        if not name or len(name) > self._limits.name_characters or not name.isprintable():
            raise StatusError(
                "INVALID_ARGUMENT",
                f"the name of each part must have 1 to {self._limits.name_characters} printable characters",
            )
        if name in self.fields or name in self.files:
            raise StatusError("INVALID_ARGUMENT", f"the form has more than one part {name!r}")
        self._part, self._file, self._field = part, None, bytearray()
        if part.filename is not None:
            if len(self.files) >= self._limits.files:
                message = f"the form has more than {self._limits.files} files, which is the limit"
                raise StatusError("INVALID_ARGUMENT", message, status=413)
            self._file = await _FileWriter.open(self._stack, self._limits, self._expected if not self.files else 0)

    async def _end_part(self) -> None:
        part = self._part
        if self._file is not None:
            filename = one_line(part.filename, MAX_FILENAME)
            self.files[part.name] = await self._file.finish(filename, part.content_type or "")
            return
        try:
            self.fields[part.name] = self._field.decode()
        except UnicodeDecodeError:
            raise StatusError("INVALID_ARGUMENT", f"the field {part.name!r} is not UTF-8") from None


def _boundary(request: HttpRequest) -> str:
    content_type, options = parse_options_header(request.headers.get("Content-Type", "")[:MAX_CONTENT_TYPE])
    boundary: str = options.get("boundary", "")
    if content_type != "multipart/form-data" or not 1 <= len(boundary) <= MAX_BOUNDARY or not boundary.isascii():
        raise StatusError("INVALID_ARGUMENT", "Content-Type must be multipart/form-data with a boundary", status=415)
    return boundary


def _check_length(request: HttpRequest, max_bytes: int) -> None:
    if (request.length or 0) > max_bytes:
        raise _too_large("the upload", max_bytes)


def _too_large(what: str, max_bytes: int) -> StatusError:
    return StatusError("INVALID_ARGUMENT", f"{what} has more than {max_bytes:,} bytes, which is the limit", status=413)


@contextmanager
def _form_errors() -> Iterator[None]:
    try:
        yield
    except ParserLimitReached as error:
        raise StatusError("INVALID_ARGUMENT", f"the form is too large: {error.args[0]}", status=413) from None
    except MultipartError as error:
        raise StatusError("INVALID_ARGUMENT", f"the body is not multipart/form-data: {error.args[0]}") from None


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except DiskFull:
        log.warn("upload rejected: disk full")
        raise StatusError(
            "RESOURCE_EXHAUSTED", "the server has no disk space for this upload; try again later", status=507
        ) from None
