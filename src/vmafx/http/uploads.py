"""Uploads: a body, or the parts of a form, streamed into files without a name and hashed on the way.

The files last as long as the context in which they were received. Then, or when anything goes wrong, nothing of them is
left.
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
from vmafx.http.errors import CallRefused
from vmafx.http.limits import UPLOAD_LIMITS, UploadLimits
from vmafx.http.request import HttpRequest
from vmafx.logs import log
from vmafx.scratch import DiskFull, ScratchFile
from vmafx.tasks import in_thread
from vmafx.text import one_line

BLOCK_SIZE = 256 << 10  # bytes: what is written at once, and what has to come within block_seconds
MAX_CONTENT_TYPE = 256  # characters
MAX_BOUNDARY = 70  # characters, by RFC 2046
MAX_FILENAME = 255  # characters


class UploadedFile(msgspec.Struct, frozen=True):
    """A file that came. `fd` can only be read, and is closed at the end of the context."""

    fd: int
    size: int
    sha256: str
    filename: str = ""  # as the caller has it: to be shown, never to be opened
    content_type: str = ""


class UploadedForm(msgspec.Struct, frozen=True):
    """By the names of the parts; no name stands twice."""

    fields: dict[str, str]
    files: dict[str, UploadedFile]


@asynccontextmanager
async def receive_file(request: HttpRequest, limits: UploadLimits = UPLOAD_LIMITS) -> AsyncIterator[UploadedFile]:
    """The body as it is, whatever its type."""
    most = min(limits.file_bytes, limits.total_bytes)
    _refuse_long(request, most)
    async with _files() as stack:
        file = await _File.make(stack, limits, request.length or 0)
        async with request.body() as content:
            body = _Body(content, limits, most)
            while data := await body.read():
                await file.add(data)
        yield await file.finish(content_type=request.headers.get("Content-Type", ""))


@asynccontextmanager
async def receive_form(request: HttpRequest, limits: UploadLimits = UPLOAD_LIMITS) -> AsyncIterator[UploadedForm]:
    """The parts of multipart/form-data: those with a file name are files, the others fields of UTF-8."""
    parser = PushMultipartParser(
        _boundary(request),
        max_header_size=limits.part_header_bytes,
        max_header_count=limits.part_headers,
        max_segment_count=limits.parts,
    )
    _refuse_long(request, limits.total_bytes)
    async with _files() as stack:
        async with request.body() as content:
            body = _Body(content, limits, limits.total_bytes)
            parts = _Parts(stack, limits, request.length or 0)
            with _form_errors(), parser:
                while data := await body.read():
                    for event in parser.parse(data):
                        await parts.take(event)
        yield UploadedForm(parts.fields, parts.files)


@asynccontextmanager
async def _files() -> AsyncIterator[ExitStack]:
    """What is to be closed in the end. A thread closes it: the disk takes its time to forget a large file."""
    stack = ExitStack()
    try:
        yield stack
    finally:
        await in_thread(stack.close)


class UploadRate:
    """How long to wait for more of a body. A caller who stalls, or only drips, would keep a connection for nothing."""

    def __init__(self, limits: UploadLimits) -> None:
        self._limits = limits
        self._missing, self._left = BLOCK_SIZE, limits.block_seconds  # of the present block

    def patience(self) -> float:
        return min(self._limits.stall_seconds, self._left)

    def came(self, size: int, seconds: float) -> None:
        """So many bytes, after so long; the time in which nobody waited for the caller does not count."""
        self._missing, self._left = self._missing - size, self._left - seconds
        if self._missing <= 0:
            self._missing, self._left = BLOCK_SIZE, self._limits.block_seconds


class _Body:
    """A body on its way: never more than allowed, never too slowly."""

    def __init__(self, content: StreamReader, limits: UploadLimits, most: int) -> None:
        self._content, self._most, self._size = content, most, 0
        self._pace = UploadRate(limits)

    async def read(self) -> bytes:
        """What has come; nothing at the end."""
        began = loop_time()
        try:
            async with asyncio.timeout(self._pace.patience()):
                data = await self._content.readany()
        except TimeoutError:
            raise CallRefused("INVALID_ARGUMENT", "the body comes too slowly", status=408) from None
        self._pace.came(len(data), loop_time() - began)
        self._size += len(data)
        if self._size > self._most:
            raise _too_large("an upload", self._most)
        return data


class _File:
    """A file on its way to the disk, in blocks: a thread for every small piece would be slow."""

    def __init__(self, scratch: ScratchFile, most: int) -> None:
        self._scratch, self._most = scratch, most
        self._waiting = bytearray()

    @classmethod
    async def make(cls, stack: ExitStack, limits: UploadLimits, expected: int) -> "_File":
        """`expected` bytes are said to come: if there is no room for them, the caller need not send them."""

        def opened() -> ScratchFile:
            scratch = ScratchFile(limits.folder or tempfile.gettempdir(), limits.reserve_bytes)
            stack.callback(scratch.close)  # here and not later: a caller who leaves now must not leave a descriptor
            scratch.require(expected)
            return scratch

        with _disk_errors():
            return cls(await in_thread(opened), limits.file_bytes)

    async def add(self, data: bytes) -> None:
        if self._scratch.size + len(self._waiting) + len(data) > self._most:
            raise _too_large("a file", self._most)
        self._waiting += data
        if len(self._waiting) >= BLOCK_SIZE:
            await self._write()

    async def finish(self, filename: str = "", content_type: str = "") -> UploadedFile:
        await self._write()
        fd = await in_thread(self._scratch.seal)
        return UploadedFile(fd, self._scratch.size, self._scratch.digest, filename, content_type)

    async def _write(self) -> None:
        block, self._waiting = self._waiting, bytearray()
        with _disk_errors():
            await in_thread(self._scratch.write, block)


class _Parts:
    """The parts of a form, as the parser finds them: the head of one, its data, None at its end."""

    def __init__(self, stack: ExitStack, limits: UploadLimits, expected: int) -> None:
        self.fields: dict[str, str] = {}
        self.files: dict[str, UploadedFile] = {}
        self._stack, self._limits, self._expected = stack, limits, expected
        self._head: MultipartSegment = None
        self._file: _File | None = None
        self._field = bytearray()

    async def take(self, event: MultipartSegment | bytes | None) -> None:
        if isinstance(event, MultipartSegment):
            await self._begin(event)
        elif event is None:
            await self._end()
        elif self._file is not None:
            await self._file.add(event)
        else:
            self._field += event
            if len(self._field) > self._limits.field_bytes:
                raise _too_large("a field", self._limits.field_bytes)

    async def _begin(self, head: MultipartSegment) -> None:
        name = head.name
        if not name or len(name) > self._limits.name_characters or not name.isprintable():
            most = self._limits.name_characters
            raise CallRefused("INVALID_ARGUMENT", f"a part has no name of 1 to {most} printable characters")
        if name in self.fields or name in self.files:
            raise CallRefused("INVALID_ARGUMENT", f"the part {name!r} stands twice in the form")
        self._head, self._file, self._field = head, None, bytearray()
        if head.filename is not None:
            if len(self.files) >= self._limits.files:
                raise CallRefused("INVALID_ARGUMENT", f"a form has at most {self._limits.files} files", status=413)
            self._file = await _File.make(self._stack, self._limits, self._expected if not self.files else 0)

    async def _end(self) -> None:
        head = self._head
        if self._file is not None:
            shown = one_line(head.filename, MAX_FILENAME)
            self.files[head.name] = await self._file.finish(shown, head.content_type or "")
            return
        try:
            self.fields[head.name] = self._field.decode()
        except UnicodeDecodeError:
            raise CallRefused("INVALID_ARGUMENT", f"the field {head.name!r} is not UTF-8") from None


def _boundary(request: HttpRequest) -> str:
    kind, options = parse_options_header(request.headers.get("Content-Type", "")[:MAX_CONTENT_TYPE])
    boundary: str = options.get("boundary", "")
    if kind != "multipart/form-data" or not 1 <= len(boundary) <= MAX_BOUNDARY or not boundary.isascii():
        raise CallRefused("INVALID_ARGUMENT", "the body is not multipart/form-data with a boundary", status=415)
    return boundary


def _refuse_long(request: HttpRequest, most: int) -> None:
    if (request.length or 0) > most:
        raise _too_large("an upload", most)


def _too_large(what: str, most: int) -> CallRefused:
    return CallRefused("INVALID_ARGUMENT", f"{what} has at most {most:,} bytes", status=413)


@contextmanager
def _form_errors() -> Iterator[None]:
    try:
        yield
    except ParserLimitReached as error:
        raise CallRefused("INVALID_ARGUMENT", f"the form is too large: {error.args[0]}", status=413) from None
    except MultipartError as error:
        raise CallRefused("INVALID_ARGUMENT", f"the body is not multipart/form-data: {error.args[0]}") from None


@contextmanager
def _disk_errors() -> Iterator[None]:
    try:
        yield
    except DiskFull:
        log.warn("an upload was refused: the disk is full")
        raise CallRefused(
            "RESOURCE_EXHAUSTED", "the server has no room for this upload; try later", status=507
        ) from None
