"""DeviceProcess: a device process and the socket to it, from outside of it."""

import asyncio
import os
import signal
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, closing, suppress
from pathlib import Path
from tempfile import mkdtemp

import msgspec

from vmafx.api.hardware import DEVICE_VARIABLES, Backend
from vmafx.process.child import child, exit_description, python_command
from vmafx.scoring.cache import default_cache_folder
from vmafx.scoring.engines.engine import no_engine
from vmafx.scoring.engines.gpu.messages import MAX_PACKET, Answer, DeviceReady, DeviceSetup, MeasureTask, Unusable
from vmafx.scoring.engines.raw_frames import MAX_LINES, read_lines
from vmafx.scoring.errors import EngineFailure, NodeFault, ScoringError, spawn_errors_as_node_fault

PROGRAM = str(Path(__file__).with_name("main.py"))
START_TIMEOUT = 300.0  # seconds to import torch and to find the device, from a cold disk
KERNEL_CACHE = "TRITON_CACHE_DIR"
PASSED_ON = ("LD_LIBRARY_PATH", "PATH", "TMPDIR", *DEVICE_VARIABLES)
# Multiplications and additions are fused, as in what was measured: versions of Triton differ in their default.
KERNEL_SETTINGS = {"TRITON_DEFAULT_FP_FUSION": "1"}


class DeviceProcess:
    """A device process. It does one task at a time."""

    ready: DeviceReady  # once it has started

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._lines = deque[str](maxlen=MAX_LINES)

    @property
    def has_ended(self) -> bool:
        """Of an idle process, from which no answer is to come."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionResetError:
            return True

    async def start(self, backend: Backend, environ: Mapping[str, str]) -> None:
        """Raises NodeFault if this machine has no device of the backend, or cannot use it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = self._stack.enter_context(closing(ours))
        ours.setblocking(False)
        setup = msgspec.json.encode(DeviceSetup(os.getpid(), theirs.fileno(), backend)).decode()
        environment = KERNEL_SETTINGS | {name: environ[name] for name in PASSED_ON if name in environ}
        with closing(theirs), spawn_errors_as_node_fault():
            environment.setdefault(KERNEL_CACHE, str(_kernel_cache()))
            self._process = await self._stack.enter_async_context(
                child(python_command(PROGRAM, setup), [theirs.fileno()], tether=False, environment=environment)
            )
        self._reading = asyncio.create_task(read_lines(self._process.stderr, self._lines))
        self._stack.callback(self._reading.cancel)
        try:
            async with asyncio.timeout(START_TIMEOUT):
                answer = await self.receive()
        except TimeoutError:
            why = f"torch found no device within {START_TIMEOUT:.0f} s"
            raise no_engine(backend, why) from None
        except ScoringError as failure:  # before any task: the cause is this machine
            raise no_engine(backend, str(failure)) from failure
        if not isinstance(answer, DeviceReady):
            why = answer.why if isinstance(answer, Unusable) else "the device process sent no valid answer"
            raise no_engine(backend, why)
        self.ready = answer

    def send(self, task: MeasureTask, descriptors: Sequence[int]) -> None:
        """The process closes its copies of the descriptors. If it has ended, `receive` says why."""
        with suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._socket, [msgspec.json.encode(task)], descriptors)

    async def receive(self) -> Answer:
        """The next answer. Raises EngineFailure if the process has failed, NodeFault if it was killed."""
        packet = b""
        with suppress(ConnectionResetError):  # it has ended, and had not read what was sent to it
            packet = await asyncio.get_running_loop().sock_recv(self._socket, MAX_PACKET)
        if packet:
            answer: Answer = msgspec.json.decode(packet, type=Answer)
            return answer
        code = await self._process.wait()
        await self._reading
        failed = f"the device process failed with {exit_description(code)}"
        if code == -signal.SIGKILL:
            raise NodeFault(f"{failed}: probably killed because this machine or its cgroup ran out of memory")
        last = next((line for line in reversed(self._lines) if line), "no error message")
        raise EngineFailure(f"{failed}: {last}")

    async def close(self) -> None:
        """Kills the process."""
        await self._stack.aclose()


def _kernel_cache() -> Path:
    """A folder for compiled kernels, which only this user can write to. Raises OSError."""
    cache = default_cache_folder()
    if cache is not None:
        folder = cache.with_name("kernels")
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            pass
        else:
            if os.access(folder, os.W_OK):
                return folder
    return Path(mkdtemp(prefix="vmafx-kernels-"))
