"""Finds the registry's binary: on PATH, in the cache, else built from source."""

import shutil
import subprocess
from importlib import resources
from pathlib import Path

from vmafx.devcluster.build import GoTool
from vmafx.devcluster.progress import ProgressReporter

MODULE = "github.com/distribution/distribution/v3"
SOURCES = Path(str(resources.files("vmafx.devcluster.registry")))  # holds go.mod and go.sum
REGISTRY = GoTool("registry", "the OCI registry", MODULE, "cmd/registry", SOURCES, "3 to 5")


def find_registry(progress: ProgressReporter) -> Path:
    """The path of the binary; built first if there is none."""
    on_path = shutil.which("registry")
    return Path(on_path) if on_path and _is_distribution(on_path) else REGISTRY.cached(progress)


def _is_distribution(program: str) -> bool:
    """Other programs have this name too."""
    shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return MODULE in shown.stdout
