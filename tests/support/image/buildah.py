"""Debian's buildah, with a storage of its own in vmafx's cache."""

import os
import re
import shutil
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from vmafx.devcluster.progress import ProgressReporter
from vmafx.process.tether import tethered

# Without cgroups and a network of its own; nothing is pulled.
OPTIONS = ("--isolation", "chroot", "--network", "host", "--pull=never")
# In namespaces of its own, so that no process and no mount outlives a command, or the process that started it.
ISOLATED = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
MAX_STORAGE = 4 << 30  # bytes; builds leave layers behind, from which the next ones start
TIME_LIMIT = 1800.0  # seconds for one command: several times what a build takes on two busy cores


class BuildFailed(Exception):
    """An image cannot be built; the text is the end of what was printed."""


class Buildah:
    """Images in the folder. One process at a time: hold a lock."""

    def __init__(self, folder: Path, progress: ProgressReporter) -> None:
        self._folder, self._progress = folder, progress

    def run(self, *command: str, environment: Mapping[str, str] | None = None) -> None:
        """Run buildah, or a program that calls it, and show what it prints."""
        with self._storage(environment or {}) as variables:
            done = run_with_progress(command, self._progress, variables)
        if done.returncode != 0:
            raise BuildFailed(f"`{' '.join(command[:2])}` failed: {done.stdout.strip()}")

    def has(self, name: str) -> bool:
        return name in self._list("--format", "{{.Name}}:{{.Tag}}")

    def images(self) -> set[str]:
        """The ids of all images, those of single steps included."""
        return self._list("--all", "--quiet", "--no-trunc")

    def remove(self, images: set[str]) -> None:
        if images:
            self.run("buildah", "rmi", "--force", *images)

    def save(self, name: str, archive: Path) -> None:
        """Write an image as an archive in Docker's format."""
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            part = Path(folder) / archive.name
            self.run("buildah", "push", name, f"docker-archive:{part}:{name}")
            part.replace(archive)

    def shrink(self) -> None:
        """Remove everything once it takes too much room."""
        if _size(self._folder) > MAX_STORAGE:
            shutil.rmtree(self._folder)

    def _list(self, *options: str) -> set[str]:
        command = [*ISOLATED, "buildah", "images", *options]
        with self._storage({}) as variables:
            done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise BuildFailed(f"`buildah images` failed: {done.stderr.strip()}")
        return set(done.stdout.split())

    @contextmanager
    def _storage(self, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
        """The variables of a call."""
        with tempfile.TemporaryDirectory() as state:  # what is mounted, which is nothing between two calls
            configuration = Path(state) / "storage.conf"
            configuration.write_text(
                f'[storage]\ndriver = "{self._driver()}"\ngraphroot = "{self._folder}"\nrunroot = "{state}/run"\n'
            )
            yield {**os.environ, **environment, "CONTAINERS_STORAGE_CONF": str(configuration)}

    def _driver(self) -> str:
        """How layers are stored: by overlay where the file system of the folder allows it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        names = ["lower", "upper", "work", "merged"]
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            for name in names:
                (Path(folder) / name).mkdir()
            layers = f"lowerdir={folder}/lower,upperdir={folder}/upper,workdir={folder}/work"
            command = ["unshare", "--mount", "mount", "-t", "overlay", "-o", layers, "overlay", f"{folder}/merged"]
            usable = subprocess.run(command, capture_output=True, check=False).returncode == 0
        return "overlay" if usable else "vfs"


def run_with_progress(
    command: Sequence[str],
    progress: ProgressReporter,
    environment: Mapping[str, str] | None = None,
    within: float = TIME_LIMIT,
) -> "subprocess.CompletedProcess[str]":
    """Run a command in namespaces of its own, showing its lines as details; the result has the last of them.

    Raises BuildFailed if it takes longer than `within` seconds.
    """
    lines: deque[str] = deque(maxlen=30)
    expired = threading.Event()
    unshare = [shutil.which("unshare") or "/usr/bin/unshare", *ISOLATED[1:]]
    with subprocess.Popen(
        tethered([*unshare, *command]), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    ) as process:  # fmt: skip
        assert process.stdout is not None

        def end() -> None:
            expired.set()
            process.kill()  # `unshare` ignores SIGTERM; with it, the kernel kills what it has started

        timer = threading.Timer(within, end)
        timer.daemon = True
        timer.start()
        try:
            for line in process.stdout:
                lines.append(line)
                progress.detail(re.sub(r"\s+", " ", line).strip()[:150])
            process.wait()
        except BaseException:
            process.kill()
            raise
        finally:
            timer.cancel()
    if expired.is_set():
        raise BuildFailed(f"`{' '.join(command[:2])}` took longer than {within:.0f} s: {''.join(lines).strip()}")
    return subprocess.CompletedProcess(list(command), process.returncode, "".join(lines))


def missing_requirement() -> str | None:
    """Why this machine cannot build and run images; None if it can."""
    if os.geteuid() != 0:
        return "only root can: debootstrap and buildah make device files and mounts"
    if missing := [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]:
        return f"{' and '.join(missing)} missing; on Debian: apt-get install buildah debootstrap"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode != 0:
        return "this process may not create mount namespaces (`unshare --mount`)"
    return None


def _size(folder: Path) -> int:
    command = ["du", "--summarize", "--block-size=1", str(folder)]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(shown.stdout.split()[0]) if shown.stdout else 0
