"""DecoderProcess: a decoder process, the pipes to it and its limits, from outside of it."""

import asyncio
import fcntl
import os
import re
import time
from collections import deque
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import cache
from io import FileIO
from pathlib import Path
from typing import cast

import msgspec

from vmafx.logs import log
from vmafx.process.child import child, kill, python_command
from vmafx.process.sandbox import cpu_seconds, limit_cpu
from vmafx.scoring.decoder.messages import MAX_ANSWER, Answer, DecoderSetup, Ready, Refusal, Task
from vmafx.scoring.errors import spawn_errors_as_node_fault
from vmafx.scoring.media.access import OpenedMedia

PROGRAM = str(Path(__file__).with_name("main.py"))
CHECK_INTERVAL = 5.0  # seconds between checks of a decoder's progress and CPU time
END_TIMEOUT = 60.0  # seconds to end after the last answer
F_SETPIPE_SZ, PIPE_SIZE = 1031, 1 << 20  # the largest pipe without privileges: fewer switches between processes
LOG_CHUNK, MAX_LINES, MAX_LINE_LENGTH = 1 << 16, 20, 500
# An error of a demuxer or decoder. Decoders of sound and pictures are not allowed, which is no error of the clip.
ERROR_PATTERN = re.compile(rb"\[(?!swscaler )[^\]]+ @ 0x[0-9a-f]+\] (?!Codec \([^)]*\) not on whitelist)")

NO_VALID_ANSWER = Refusal("its decoder gave no valid answer: the clip is damaged or malicious")


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


class DecoderProcess:
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
                if not self.ready.confined:
                    _warn_unconfined(self.ready.sandbox)
                line = await self._stdout.readline()
            return msgspec.json.decode(line, type=Answer) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):  # not a message, or longer than allowed
            return NO_VALID_ANSWER

    async def receive_soon(self) -> Answer | None:
        """Like `receive`, for CHECK_INTERVAL at most. Raises TimeoutError."""
        async with asyncio.timeout(CHECK_INTERVAL):
            return await self.receive()

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
