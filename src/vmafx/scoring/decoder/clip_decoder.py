"""ClipDecoder: has one clip inspected and decoded by decoder processes, which alone read its bytes."""

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from io import FileIO
from typing import Self, TypeVar

import msgspec

from vmafx.api.scoring import RawFormat
from vmafx.process.child import exit_description
from vmafx.scoring.clip import Clip, raw_frame_bytes
from vmafx.scoring.decoder.messages import (
    Answer,
    Conversion,
    DecodedClip,
    DecodeProgress,
    DecodeTask,
    InspectedClip,
    InspectTask,
    Pictures,
    PicturesTask,
    Refusal,
    Task,
)
from vmafx.scoring.decoder.process import CHECK_INTERVAL, NO_VALID_ANSWER, DecoderProcess
from vmafx.scoring.errors import BadInput, EngineFailure, InputPart, NodeFault, ScoringError
from vmafx.scoring.media.access import OpenedMedia
from vmafx.scoring.request import ClipLimits, Source
from vmafx.scoring.stall import STALL_TIMEOUT

T = TypeVar("T")
MIN_READ_RATE = 20e6  # bytes per second; the time limit allows for a disk this slow
ANSWER_DELAY = 2.0  # seconds between the last frame of a decoder and its answer
MAX_PICTURE = 1 << 20  # bytes
PICTURES_TIMEOUT = 3600.0  # seconds
MAX_THREADS = 16  # of a decoder; more only take memory


class ClipDecoder:
    """Decodes one clip. Raises BadInput if the clip is the cause: it is damaged, too large or hostile."""

    def __init__(self, opened: OpenedMedia, source: Source, part: InputPart, limits: ClipLimits) -> None:
        self._opened, self._source, self._part, self._limits = opened, source, part, limits
        self._idle: DecoderProcess | None = None  # has inspected the clip and can decode it
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
        self,
        conversion: Conversion,
        outputs: int = 1,
        *,
        threads: int,
        readers: int = 1,
        luma_only: bool = False,
        first: int = 0,
        end: int | None = None,
    ) -> AsyncIterator["Decoding"]:
        """Decodes the frames [first, end) for the length of the block. `readers` read the same pipe of each output."""
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
                luma_only=luma_only,
                outputs=outputs,
                first=first,
                end=end,
                threads=min(threads, MAX_THREADS),
            )
            self._limit_cpu(process)
            async with Decoding(self, process, task, readers) as decoding:
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

    async def _start(self, outputs: int) -> DecoderProcess:
        process = DecoderProcess()
        try:
            await process.start(self._opened, outputs, self._limits.memory)
        except BaseException:
            await process.close()
            raise
        return process

    def _limit_cpu(self, process: DecoderProcess) -> None:
        process.limit_cpu(self._limits.probe_seconds + self._limits.frame_seconds * max(self._packets, 1))

    async def _ask(self, process: DecoderProcess, task: Task) -> Answer:
        await process.send(task)
        answer = await process.receive()
        if process.ready is not None:
            self.version = process.ready.version
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

    async def failure(self, process: DecoderProcess) -> ScoringError:
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
        return self._fault_of_clip(code)

    def _fault_of_clip(self, code: int | None) -> BadInput:
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

    def __init__(self, decoder: ClipDecoder, process: DecoderProcess, task: DecodeTask, readers: int) -> None:
        self._decoder, self._process, self._task = decoder, process, task
        self.outputs = process.outputs[: task.outputs]
        self._readers = dict.fromkeys(self.outputs, readers)  # of each output; outputs without any are left out

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
        """A reader does not need this output any more."""
        self._readers[output] -= 1
        if not self._readers[output]:
            output.close()
            del self._readers[output]

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
                answer = await self._process.receive_soon()
            except TimeoutError:  # as long as an engine reads the frames, it may be the slow one
                waited += 0.0 if self._readers else CHECK_INTERVAL
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
