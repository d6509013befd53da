"""Programs that Debian does not have: Kubernetes, cluster DNS, the registry, the probe; built once, then cached."""

import hashlib
import time
from pathlib import Path

import msgspec

from vmafx.devcluster import binaries, components, paths, tools
from vmafx.devcluster.build import NODE_COMPONENTS, go_build
from vmafx.devcluster.errors import BinariesUnavailable
from vmafx.devcluster.progress import ProgressReporter, duration
from vmafx.devcluster.registry import find_registry

SOURCES = Path(__file__).parent / "go"  # a module with a folder for each program
DNS, PROBE = "dns", "probe"


class Binaries(msgspec.Struct, frozen=True):
    kubernetes: dict[str, Path]
    dns: Path  # CoreDNS with the plugins of go/dns/main.go: with all of them it takes much longer to build
    probe: Path
    registry: Path
    kubectl: Path


def find_binaries(progress: ProgressReporter) -> Binaries:
    kubernetes = binaries.find_binaries((*components.ALL, *NODE_COMPONENTS), progress)
    probe, dns = _find_own(PROBE, progress), _find_own(DNS, progress)
    return Binaries(kubernetes, dns, probe, find_registry(progress), tools.kubectl(progress))


def _find_own(name: str, progress: ProgressReporter) -> Path:
    """A program of the module in SOURCES; each version of its sources has a folder in the cache."""
    digest = hashlib.sha256()
    for path in (SOURCES / "go.mod", SOURCES / "go.sum", *sorted((SOURCES / name).iterdir())):
        digest.update(path.read_bytes())
    folder = paths.cache() / "tools" / f"e2e-{name}-{digest.hexdigest()[:12]}-{paths.platform_name()}"
    with paths.folder_lock(folder):
        if not (folder / name).exists():
            _build(name, folder / name, progress)
    return folder / name


def _build(name: str, output: Path, progress: ProgressReporter) -> None:
    progress.step(f"building {name} ({SOURCES / name}) from source: only once; takes up to 4 minutes on 2 cores")
    started = time.monotonic()
    errors = go_build(tools.go(progress), f"./{name}", SOURCES, output, progress)
    if errors is not None:
        raise BinariesUnavailable(f"cannot build {name}: {' '.join(errors[-3:])[-600:]}")
    progress.step(f"built in {duration(time.monotonic() - started)}; the binary is in {output.parent}")
