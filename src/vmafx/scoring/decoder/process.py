"""ClipDecoder: has one clip inspected and decoded by decoder processes, which alone read its bytes."""

import asyncio
import fcntl
import os
import re
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Self, TypeVar, cast

import msgspec

from vmafx.api.scoring import RawFormat
from vmafx.logs import log
from vmafx.process.child import child, exit_description, kill, python_command
from vmafx.process.sandbox import cpu_seconds, limit_cpu
from vmafx.scoring.clip import Clip, raw_frame_bytes
from vmafx.scoring.decoder.messages import (
    MAX_ANSWER,
    Answer,
    Conversion,
    DecodedClip,
    DecodeProgress,
    DecoderSetup,
    DecodeTask,
    InspectedClip,
    InspectTask,
    Pictures,
    PicturesTask,
    Ready,
    Refusal,
    Task,
)
from vmafx.scoring.errors import BadInput, EngineFailure, InputPart, NodeFault, ScoringError, spawn_errors_as_node_fault
from vmafx.scoring.media.access import OpenedMedia
from vmafx.scoring.request import ClipLimits, Source
from vmafx.scoring.stall import STALL_TIMEOUT

T = TypeVar("T")
PROGRAM = str(Path(__file__).with_name("main.py"))
MIN_READ_RATE = 20e6  # bytes per second; the time limit allows for a disk this slow
CHECK_INTERVAL = 5.0  # seconds between checks of a decoder's progress and CPU time
ANSWER_DELAY = 2.0  # seconds between the last frame of a decoder and its answer
END_TIMEOUT = 60.0  # seconds to end after the last answer
MAX_PICTURE = 1 << 20  # bytes
PICTURES_TIMEOUT = 3600.0  # seconds
MAX_THREADS = 16  # of a decoder; more only take memory
F_SETPIPE_SZ, PIPE_SIZE = 1031, 1 << 20  # the largest pipe without privileges: fewer switches between processes
LOG_CHUNK, MAX_LINES, MAX_LINE_LENGTH = 1 << 16, 20, 500
# An error of a demuxer or decoder. Decoders of sound and pictures are not allowed, which is no error of the clip.
ERROR_PATTERN = re.compile(rb"\[(?!swscaler )[^\]]+ @ 0x[0-9a-f]+\] (?!Codec \([^)]*\) not on whitelist)")

NO_VALID_ANSWER = Refusal("its decoder gave no valid answer: the clip is damaged or malicious")


class ClipDecoder:
    """Decodes one clip. Raises BadInput if the clip is the cause: it is damaged, too large or hostile."""

    def __init__(self, opened: OpenedMedia, source: Source, part: InputPart, limits: ClipLimits) -> None:
        self._opened, self._source, self._part, self._limits = opened, source, part, limits
        self._idle: _Process | None = None  # has inspected the clip and can decode it
        self._packets = 0
        self.version = ""  # of the decoder; known once the clip was inspected

    async def inspect(self, outputs: int = 0) -> Clip:
        """The properties of the clip. With `outputs`, the process is kept, to decode the clip to so many pipes."""
        if self._source.format is not None:
            _check_raw_size(self._opened, self._source.format, self._part)
        task = InspectTask(raw=self._source.format, pixels=self._limits.pixels, frames=self._limits.frames)
        timeout = self._limits.probe_seconds + self._opened.size / MIN_READ_RATE
        process = await self._start(outputs)
        kept = False
        try:
            process.limit_cpu(timeout / 2)  # before the timeout: the clip is too slow, not the disk
            async with asyncio.timeout(timeout):
                clip = self.expect(await self._ask(process, task), InspectedClip).clip
            if clip.packets > self._limits.frames:  # the decoder has the same limit
                raise self._no_valid_answer()
            self._packets, kept = clip.packets, outputs > 0
        except TimeoutError as error:
            if process.exceeds_cpu_limit():
                raise self.too_slow() from None
            raise NodeFault(
                f"probing {self._opened.display_name} took more than {timeout:.0f} s; the disk may be too slow, or the"
                " clip is damaged"
            ) from error
        finally:
            if kept:
                self._idle = process
            else:
                await process.close()
        return clip

    @asynccontextmanager
    async def decode(
        self, conversion: Conversion, outputs: int = 1, *, threads: int, first: int = 0, end: int | None = None
    ) -> AsyncIterator["Decoding"]:
        """Decodes the frames [first, end) for the length of the block."""
        process = self._idle
        if process is None or len(process.outputs) < outputs:
            process = await self._start(outputs)
        else:
            self._idle = None
        try:
            task = DecodeTask(
                raw=self._source.format,
                pixels=self._limits.pixels,
                frames=self._limits.frames,
                conversion=conversion,
                outputs=outputs,
                first=first,
                end=end,
                threads=min(threads, MAX_THREADS),
            )
            self._limit_cpu(process)
            async with Decoding(self, process, task) as decoding:
                yield decoding
        finally:
            await process.close()

    async def take_pictures(self, conversion: Conversion, numbers: Sequence[int], *, threads: int) -> list[bytes]:
        """JPEGs of the frames with these numbers, which are in ascending order."""
        task = PicturesTask(
            raw=self._source.format,
            pixels=self._limits.pixels,
            frames=self._limits.frames,
            conversion=conversion,
            numbers=tuple(numbers),
            threads=min(threads, MAX_THREADS),
        )
        process = await self._start(0)
        try:
            self._limit_cpu(process)
            async with asyncio.timeout(PICTURES_TIMEOUT):
                pictures = self.expect(await self._ask(process, task), Pictures).jpegs
        except TimeoutError:
            name = self._opened.display_name
            raise EngineFailure(f"no pictures of {name}: it took more than {PICTURES_TIMEOUT:.0f} s") from None
        finally:
            await process.close()
        if len(pictures) != len(numbers) or not all(map(_is_jpeg, pictures)):
            raise EngineFailure(f"no pictures of {self._opened.display_name}: the decoder made other ones")
        return list(pictures)

    async def close(self) -> None:
        if self._idle is not None:
            await self._idle.close()
            self._idle = None

    async def _start(self, outputs: int) -> "_Process":
        process = _Process()
        try:
            await process.start(self._opened, outputs, self._limits.memory)
        except BaseException:
            await process.close()
            raise
        return process

    def _limit_cpu(self, process: "_Process") -> None:
        process.limit_cpu(self._limits.probe_seconds + self._limits.frame_seconds * max(self._packets, 1))

    async def _ask(self, process: "_Process", task: Task) -> Answer:
        await process.send(task)
        answer = await process.receive()
        if process.ready is not None:
            self.version = process.ready.version
            if not process.ready.confined:
                _warn_unconfined(process.ready.sandbox)
        if answer is None:
            raise await self.failure(process)
        return answer

    def expect(self, answer: Answer, kind: type[T]) -> T:
        """Raises BadInput for a refusal, and for an answer to another task: the clip controls the decoder."""
        if isinstance(answer, kind):
            return answer
        if isinstance(answer, Refusal):
            raise BadInput(self._part, f"{self._opened.display_name}: {answer.why}", answer.remedy)
        raise self._no_valid_answer()

    async def failure(self, process: "_Process") -> ScoringError:
        """Why a decoder process ended without an answer."""
        code, messages = await process.end()
        how, name = exit_description(code) if code is not None else "no answer", self._opened.display_name
        if code == -signal.SIGKILL:  # no clip can choose it: the sandbox allows no signal but SIGABRT
            cause = "probably this machine or its cgroup ran out of memory"
            return NodeFault(f"the decoder of {name} ended by {how}: {cause}")
        if process.ready is None and code != -signal.SIGXCPU:
            return NodeFault(f"the decoder failed with {how} before it read {name}: {messages.last_line()}")
        if code is not None and code > 0:  # an error that the decoder does not expect, such as one of the disk
            return EngineFailure(f"the decoder of {name} failed with {how}: {messages.last_line()}")
        return self._blame_clip(code)

    def _blame_clip(self, code: int | None) -> BadInput:
        """The decoder has read the clip, and crashed, exceeded a limit, or gave no answer."""
        if code == -signal.SIGXCPU:
            return self.too_slow()
        if code:
            crash = f"reading it crashed ffmpeg's libraries ({exit_description(code)})"
            return self._bad(f"{crash}: the clip is damaged or malicious")
        return self._no_valid_answer()

    def too_slow(self) -> BadInput:
        return self._bad("decoding it takes too much CPU time")

    def _no_valid_answer(self) -> BadInput:
        return self._bad(NO_VALID_ANSWER.why)

    def _bad(self, why: str) -> BadInput:
        return BadInput(self._part, f"{self._opened.display_name}: {why}")


class Decoding:
    """A clip that is being decoded. `outputs` are the pipes that its frames come from; a reader may close them."""

    def __init__(self, decoder: ClipDecoder, process: "_Process", task: DecodeTask) -> None:
        self._decoder, self._process, self._task = decoder, process, task
        self.outputs = process.outputs[: task.outputs]
        self._read = set(self.outputs)  # by an engine

    async def __aenter__(self) -> Self:
        self._answer = asyncio.create_task(self._run())
        self._answer.add_done_callback(lambda task: task.cancelled() or task.exception())  # is raised by finished()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._answer.cancel()
        await asyncio.wait([self._answer])

    async def finished(self) -> DecodedClip:
        """Waits until the clip was decoded to its end; several callers may. Raises ScoringError."""
        return await asyncio.shield(self._answer)

    def stop_reading(self, output: FileIO) -> None:
        """Nothing reads this output any more."""
        output.close()
        self._read.discard(output)

    async def check(self) -> None:
        """Raises the error of a decoder that has failed, and thereby made an engine fail."""
        await asyncio.wait([self._answer], timeout=ANSWER_DELAY)
        if self._answer.done() and not self._answer.cancelled():
            self._answer.result()

    async def _run(self) -> DecodedClip:
        await self._process.send(self._task)
        waited, frames = 0.0, 0
        while True:
            if self._process.is_check_due() and self._process.exceeds_cpu_limit():
                await self._process.kill()  # the engine then ends, too
                raise self._decoder.too_slow()
            try:
                async with asyncio.timeout(CHECK_INTERVAL):
                    answer = await self._process.receive()
            except TimeoutError:  # as long as an engine reads the frames, it may be the slow one
                waited += 0.0 if self._read else CHECK_INTERVAL
            else:
                if answer is None:
                    raise await self._decoder.failure(self._process)
                if not isinstance(answer, DecodeProgress):
                    break
                if answer.frames > frames:
                    waited, frames = 0.0, answer.frames
            if waited >= STALL_TIMEOUT:
                raise EngineFailure(f"the decoder stalled: no frame within {STALL_TIMEOUT:.0f} s")
        decoded = self._decoder.expect(answer, DecodedClip)
        _, messages = await self._process.end()
        return msgspec.structs.replace(decoded, errors=max(decoded.errors, messages.errors))


class DecoderLog:
    """What a decoder wrote to its standard error: errors of FFmpeg's libraries, a line each."""

    def __init__(self) -> None:
        self.errors = 0
        self._lines: deque[bytes] = deque(maxlen=MAX_LINES)

    def add_line(self, line: bytes) -> None:
        self._lines.append(line[:MAX_LINE_LENGTH])
        self.errors += ERROR_PATTERN.match(line) is not None

    def last_line(self) -> str:
        """Without control characters: the clip may have written it."""
        line = next((line for line in reversed(self._lines) if line.strip()), b"no error message")
        return "".join(character if character.isprintable() else "?" for character in line.decode(errors="replace"))

    async def read(self, stderr: asyncio.StreamReader) -> None:
        pending = b""
        while chunk := await stderr.read(LOG_CHUNK):
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                self.add_line(line)
            pending = pending[:LOG_CHUNK]
        self.add_line(pending)


class _Process:
    """A decoder process and the pipes to it."""

    def __init__(self) -> None:
        self.outputs: list[FileIO] = []
        self.ready: Ready | None = None
        self._cpu_limit, self._next_check = float("inf"), 0.0
        self._stack = AsyncExitStack()
        self._log = DecoderLog()

    async def start(self, opened: OpenedMedia, outputs: int, memory: int) -> None:
        with spawn_errors_as_node_fault(), ExitStack() as ours:
            clip = ours.enter_context(FileIO(opened.reopen()))
            pipes = []
            for _ in range(outputs):
                reading, writing = os.pipe()
                self.outputs.append(self._stack.enter_context(FileIO(reading)))
                pipes.append(ours.enter_context(FileIO(writing, "w")).fileno())
                with suppress(OSError):  # the user has too many large pipes
                    fcntl.fcntl(writing, F_SETPIPE_SZ, PIPE_SIZE)
            setup = DecoderSetup(os.getpid(), clip.fileno(), tuple(pipes), memory)
            self._process = await self._stack.enter_async_context(
                child(
                    python_command(PROGRAM, msgspec.json.encode(setup).decode()),
                    [clip.fileno(), *pipes],
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    tether=False,
                    limit=MAX_ANSWER,
                )
            )
        # Three pipes were asked for, so there are three streams.
        self._stdin = cast("asyncio.StreamWriter", self._process.stdin)
        self._stdout = cast("asyncio.StreamReader", self._process.stdout)
        stderr = cast("asyncio.StreamReader", self._process.stderr)
        self._reading_log = asyncio.create_task(self._log.read(stderr))
        self._stack.callback(self._reading_log.cancel)

    async def send(self, task: Task) -> None:
        """Sends a task; a process that has ended does not receive it."""
        with suppress(ConnectionError):
            self._stdin.write(msgspec.json.encode(task) + b"\n")
            await self._stdin.drain()

    async def receive(self) -> Answer | None:
        """The next answer; None if the process has ended."""
        try:
            line = await self._stdout.readline()
            if self.ready is None:
                try:
                    self.ready = msgspec.json.decode(line, type=Ready)
                except ValueError:  # it has ended, or is another version of the program
                    return None
                line = await self._stdout.readline()
            return msgspec.json.decode(line, type=Answer) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):  # not a message, or longer than allowed
            return NO_VALID_ANSWER

    def limit_cpu(self, seconds: float) -> None:
        """Of CPU time, of its whole life."""
        self._cpu_limit = int(seconds) + 1
        limit_cpu(self._process.pid, self._cpu_limit)

    def is_check_due(self) -> bool:
        """Every CHECK_INTERVAL, however many answers it sends."""
        now = time.monotonic()
        if now < self._next_check:
            return False
        self._next_check = now + CHECK_INTERVAL
        return True

    def exceeds_cpu_limit(self) -> bool:
        """Whether it has ignored the signal at its limit, as a clip that controls it can."""
        return cpu_seconds(self._process.pid) > self._cpu_limit + 1

    async def kill(self) -> None:
        await kill(self._process)

    async def end(self) -> tuple[int | None, DecoderLog]:
        """Waits until the process has ended, as it does after its last task; its exit code and its log.

        The code is None if it did not end and was killed.
        """
        self._stdin.close()
        code = None
        with suppress(TimeoutError):
            async with asyncio.timeout(END_TIMEOUT):
                code = await self._process.wait()
        await kill(self._process)
        await self._reading_log
        return code, self._log

    async def close(self) -> None:
        """Kills the process."""
        await self._stack.aclose()


@cache
def _warn_unconfined(sandbox: str) -> None:
    """Once per process: the system is the same for all decoders."""
    log.warn("clips are decoded without a sandbox: score only clips that you trust on this machine", sandbox=sandbox)


def _is_jpeg(content: bytes) -> bool:
    """A browser would show any kind of picture that it knows."""
    return content.startswith(b"\xff\xd8\xff") and content.endswith(b"\xff\xd9") and len(content) <= MAX_PICTURE


def _check_raw_size(opened: OpenedMedia, raw: RawFormat, part: InputPart) -> None:
    """Raises BadInput if the file is not a whole number of frames, as with a wrong frame size or pixel format."""
    frame_bytes = raw_frame_bytes(raw)
    frames, remainder = divmod(opened.size, frame_bytes)
    if remainder or not frames:
        raise BadInput(
            part,
            f"its {opened.size:,} bytes are not a whole number of {raw.width}x{raw.height} {raw.pixelFormat} frames"
            f" ({opened.size / frame_bytes:.2f})",
            "check --size and --pix-fmt",
        )
