"""Finds the registry's binary: on PATH, in the cache, else built from source."""

import re
import shutil
import subprocess
import time
from importlib import resources
from pathlib import Path

from vmafx.devcluster import paths, tools
from vmafx.devcluster.build import go_build
from vmafx.devcluster.errors import BinariesUnavailable
from vmafx.devcluster.progress import ProgressReporter, duration

MODULE = "github.com/distribution/distribution/v3"
SOURCES = Path(str(resources.files("vmafx.devcluster.registry")))  # holds go.mod and go.sum


def find_registry(progress: ProgressReporter) -> Path:
    """The path of the binary; built first if there is none."""
    on_path = shutil.which("registry")
    if on_path and _is_distribution(on_path):
        return Path(on_path)
    folder = paths.cache() / "tools" / f"registry-{_version()}-{paths.platform_name()}"
    with paths.folder_lock(folder):
        if not (folder / "registry").exists():
            _build(folder / "registry", progress)
    return folder / "registry"


def _build(output: Path, progress: ProgressReporter) -> None:
    progress.step(f"building the OCI registry {_version()} from source: only once; takes 3 to 5 minutes on 2 cores")
    started = time.monotonic()
    errors = go_build(tools.go(progress), f"{MODULE}/cmd/registry", SOURCES, output, progress)
    if errors is not None:
        raise BinariesUnavailable(
            f"cannot build the OCI registry: {' '.join(errors[-3:])[-600:]}; alternatively, put `registry` of {MODULE}"
            " on PATH"
        )
    progress.step(f"built in {duration(time.monotonic() - started)}; the binary is in {output.parent}")


def _is_distribution(program: str) -> bool:
    """Other programs have this name too."""
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return MODULE in shown.stdout


def _version() -> str:
    (version,) = re.findall(rf"^\s*{re.escape(MODULE)} (v\S+)", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    return str(version)
