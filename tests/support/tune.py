"""`vmaf-tune` as a process, and an ffmpeg whose encodes with libx265 can be made to fail."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

from tests.support.video import FFMPEG

VMAF_TUNE = str(Path(sys.executable).with_name("vmaf-tune"))
# Encodes with libx265 do what the file `fault` says, in the language of sh, if there is one.
FAULTY = """#!/bin/sh
case " $* " in
*" -c:v libx265 "*) [ ! -e {folder}/fault ] || . {folder}/fault ;;
esac
exec {ffmpeg} "$@"
"""
HALF_THEN_HANG = 'for last; do :; done; echo half > "${last#file:}"; exec sleep infinity'


class Tune:
    """The command in a folder of its own, where its encodes are in `work`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder, folder / "work"
        self.environment = {"HOME": str(folder), "PATH": os.environ["PATH"], "COLUMNS": "120"}

    def run(
        self,
        *arguments: str | Path,
        program: str = VMAF_TUNE,
        stdout: IO[bytes] | None = None,
        environment: Mapping[str, str] = {},
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [program, *map(str, arguments)],
            cwd=self.folder,
            env={**self.environment, **environment},
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="surrogateescape",
            timeout=150,
            check=False,
        )

    def compare(
        self, *arguments: str | Path, stdout: IO[bytes] | None = None, environment: Mapping[str, str] = {}
    ) -> subprocess.CompletedProcess[str]:
        return self.run("compare", *arguments, "--work", self.work, stdout=stdout, environment=environment)

    def json(self, *arguments: str | Path, code: int = 0, environment: Mapping[str, str] = {}) -> Any:
        """The result of a comparison that ends with this exit code."""
        done = self.compare(*arguments, "--json", environment=environment)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    @asynccontextmanager
    async def comparing(
        self, *arguments: str | Path, environment: Mapping[str, str] = {}
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a comparison until the block is left."""
        async with self.running("compare", *arguments, "--work", self.work, environment=environment) as process:
            yield process

    @asynccontextmanager
    async def running(
        self, *arguments: str | Path, environment: Mapping[str, str] = {}
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a command until the block is left."""
        process = await asyncio.create_subprocess_exec(
            VMAF_TUNE, *map(str, arguments), cwd=self.folder,
            env={**self.environment, **environment}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    def kept(self) -> dict[str, tuple[int, int]]:
        """The files of the work folder, with inode and time of the last change."""
        files = [(path.name, path.stat()) for path in self.work.iterdir()] if self.work.is_dir() else []
        return {name: (status.st_ino, status.st_size) for name, status in files}

    def partial(self) -> list[str]:
        return [name for name in self.kept() if name.endswith(".part")]


class FaultyFfmpeg:
    """An ffmpeg whose encodes with libx265 fail while `fault` is set."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._fault, self.path = folder / "fault", folder / "ffmpeg"
        self.path.write_text(FAULTY.format(folder=folder, ffmpeg=FFMPEG))
        self.path.chmod(0o755)

    @property
    def environment(self) -> dict[str, str]:
        return {"VMAFX_FFMPEG_BIN": str(self.path)}

    def fault(self, script: str) -> None:
        """Encodes with libx265 run this script from now on; an empty one repairs them."""
        if script:
            self._fault.write_text(f"{script}\n")
        else:
            self._fault.unlink()


def encodes(result: Any) -> dict[str, dict[str, Any]]:
    """The encodes of a result by name."""
    return {
        f"{variant['name']} {encode['quality']:g}": encode
        for variant in result["variants"]
        for encode in variant["encodes"]
    }
