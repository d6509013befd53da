"""Finds Helm, for the tests of the chart: on PATH, in the cache, else built from source.

go.mod and go.sum pin its version.
"""

import re
import shutil
import subprocess
from importlib import resources
from pathlib import Path

from vmafx.devcluster.build import GoTool
from vmafx.devcluster.progress import ProgressReporter

MIN_VERSION = (3, 18)  # its messages about wrong values name the value
MODULE = "helm.sh/helm/v4"
SOURCES = Path(str(resources.files("vmafx.devcluster.helm")))  # holds go.mod and go.sum
HELM = GoTool("helm", "Helm", MODULE, "cmd/helm", SOURCES, "3 to 6")


def find_helm(progress: ProgressReporter) -> Path:
    """The path of the binary; built first if there is none."""
    on_path = shutil.which("helm")
    return Path(on_path) if on_path and _version(on_path) >= MIN_VERSION else HELM.cached(progress)


def _version(program: str) -> tuple[int, int]:
    shown = subprocess.run([program, "version", "--template={{.Version}}"], capture_output=True, text=True, check=False)
    found = re.search(r"v(\d+)\.(\d+)", shown.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)
