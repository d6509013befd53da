"""CRDs of other projects from their Go modules: those of the Gateway API and of the Prometheus Operator."""

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import yaml

from vmafx.devcluster import tools
from vmafx.devcluster.progress import PlainProgress

Crd = dict[str, Any]


class _Module(msgspec.Struct, frozen=True):
    path: str
    version: str
    sum: str  # as go.sum has it
    files: tuple[str, ...]


class _Download(msgspec.Struct):
    Dir: str
    Sum: str


GATEWAY_API = _Module(
    "sigs.k8s.io/gateway-api", "v1.6.1", "h1:mock6phZbI6rvZerwrVNk7hVNymQgHo+6sJ81Ia7ftY=",
    ("config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",),
)  # fmt: skip
PROMETHEUS_OPERATOR = _Module(
    "github.com/prometheus-operator/prometheus-operator", "v0.94.0",
    "h1:VxMKzqr8Xqw5/QInNT7a3B5XInPnHqE7SD2UIdwKpRM=",
    tuple(f"example/prometheus-operator-crd/monitoring.coreos.com_{one}.yaml" for one in
          ("servicemonitors", "podmonitors", "prometheusrules")),
)  # fmt: skip


def module_crds() -> list[Crd]:
    """The CRDs; their modules are downloaded into Go's cache, and compared with their checksums."""
    return [crd for module in (GATEWAY_API, PROMETHEUS_OPERATOR) for crd in _crds(module)]


def _crds(module: _Module) -> list[Crd]:
    command = [str(tools.go(PlainProgress())), "mod", "download", "-json", f"{module.path}@{module.version}"]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    download = msgspec.json.decode(done.stdout, type=_Download)
    assert download.Sum == module.sum, f"{module.path} {module.version} has another checksum: {download.Sum}"
    return [yaml.safe_load((Path(download.Dir) / file).read_text()) for file in module.files]


if __name__ == "__main__":
    module_crds()
