"""Engines: finds the engine for a backend on this machine."""

import asyncio
import os
from collections.abc import Mapping

from vmafx.api.hardware import Backend
from vmafx.scoring.engines.engine import Engine
from vmafx.scoring.engines.ffmpeg import find_ffmpeg
from vmafx.scoring.engines.libvmaf import LibvmafEngine
from vmafx.scoring.errors import NodeFault

SCORED_BACKENDS: tuple[Backend, ...] = ("cpu",)  # those that this version has an engine for


class Engines:
    """The engines of this machine. Each is looked for once, when it is first needed."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._found: asyncio.Task[Engine] | None = None

    def check(self, backend: Backend | None) -> None:
        """Raises NodeFault if this version has no engine for a backend, before clips are fetched for it."""
        if backend not in {None, *SCORED_BACKENDS}:
            raise NodeFault(
                f"this machine has no engine for the backend {backend}; this version of vmafx scores on"
                f" {' and '.join(SCORED_BACKENDS)} only: use {SCORED_BACKENDS[0]}, or leave the backend unset"
            )

    async def choose(self, backend: Backend | None = None) -> Engine:
        """The engine for a backend; without one, the best that this machine has.

        Raises NodeFault if the machine has none: another machine may. A backend is never replaced by another.
        """
        self.check(backend)
        if self._found is None or self._found.cancelled():
            self._found = asyncio.ensure_future(self._find_libvmaf())
        return await asyncio.shield(self._found)

    async def _find_libvmaf(self) -> Engine:
        return LibvmafEngine(await find_ffmpeg(self._environ))
