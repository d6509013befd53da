"""Debian's buildah, with a storage of its own in vmafx's cache."""

import os
import re
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from vmafx.devcluster.progress import ProgressReporter

NETWORK = ("--isolation", "chroot", "--network", "host")  # needs no cgroups and no network of its own
MAX_STORAGE = 12 << 30  # bytes; builds leave layers behind, from which the next ones start


class BuildFailed(Exception):
    """An image cannot be built; the text is the end of what was printed."""


class Buildah:
    """Builds images and keeps them in the folder. One process at a time: hold the lock of the folder."""

    def __init__(self, folder: Path, progress: ProgressReporter) -> None:
        self._folder, self._progress = folder, progress

    def build(self, context: Path, dockerfile: Path, tag: str, options: Sequence[str] = ()) -> None:
        """Build an image from images that are here; nothing is pulled."""
        self._call("bud", *NETWORK, "--pull=never", "-f", str(dockerfile), "-t", tag, *options, str(context))

    def save(self, tag: str, name: str, archive: Path) -> None:
        """Write an image, under a full name, as an archive in Docker's format."""
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            part = Path(folder) / archive.name
            self._call("push", tag, f"docker-archive:{part}:{name}")
            part.replace(archive)

    def has(self, tag: str) -> bool:
        return self._buildah("images", "--quiet", tag).returncode == 0

    def shrink(self) -> None:
        """Remove everything once it takes too much room."""
        if _size(self._folder) > MAX_STORAGE:
            self._call("rmi", "--all", "--force")

    def _call(self, *arguments: str) -> None:
        done = self._buildah(*arguments)
        if done.returncode != 0:
            raise BuildFailed(f"buildah {arguments[0]} failed: {done.stdout.strip()}")

    def _buildah(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        with tempfile.TemporaryDirectory() as state:  # what is mounted, which is nothing between two calls
            command = ["buildah", "--root", str(self._folder), "--runroot", state, *arguments]
            return follow(command, self._progress)


def follow(command: Sequence[str], progress: ProgressReporter) -> "subprocess.CompletedProcess[str]":
    """Run a command, showing its lines as details; the result has the last of them."""
    lines: deque[str] = deque(maxlen=30)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line)
                progress.detail(re.sub(r"\s+", " ", line).strip()[:150])
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, "".join(lines))


def obstacle() -> str | None:
    """Why this machine cannot build and run images; None if it can."""
    if os.geteuid() != 0:
        return "images are built by root only: debootstrap and buildah make device files and mounts"
    if missing := [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]:
        return f"{' and '.join(missing)} missing; on Debian: apt-get install buildah debootstrap"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        return "this process may not create mount namespaces (`unshare --mount`)"
    return None


def _size(folder: Path) -> int:
    command = ["du", "--summarize", "--block-size=1", str(folder)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(shown.stdout.split()[0]) if shown.stdout else 0
