"""A disk of a few hundred kilobytes, which can be filled: a tmpfs in a mount namespace of its own."""

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.support.agent_process import read
from tests.support.commands import VMAFX
from tests.support.waiting import until

CHUNK = 4096  # bytes
HOLDER = 'mount -t tmpfs -o size="$1" none "$2" && echo mounted && exec sleep infinity'


class TinyDisk:
    """`path` leads to the disk, which is mounted over `folder` for programs of `program`. Use as a context manager."""

    def __init__(self, folder: Path, size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._size = folder, size

    def __enter__(self) -> Self:
        command = [
            "unshare",
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            HOLDER,
            "sh",
            str(self._size),
            str(self._folder),
        ]
        self._holder = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"mounted\n"
        until(lambda: "sleep" in read(self._holder.pid, "cmdline"), "the disk is mounted")
        self.path = Path(f"/proc/{self._holder.pid}/root{self._folder}")
        return self

    def __exit__(self, *_: object) -> None:
        self._holder.kill()
        self._holder.communicate()

    def program(self, file: Path, command: str = VMAFX) -> str:
        """Write a program that runs a command with the disk."""
        enter = f"nsenter --target {self._holder.pid} --user --mount --preserve-credentials"
        file.write_text(f'#!/bin/sh\nexec {enter} {command} "$@"\n')
        file.chmod(0o755)
        return str(file)

    def fill(self) -> None:
        """Use up all room."""
        with suppress(OSError), (self.path / "ballast").open("ab", buffering=0) as file:
            while file.write(bytes(CHUNK)):
                pass

    def make_room(self) -> None:
        (self.path / "ballast").unlink()
