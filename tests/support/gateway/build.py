"""Envoy Gateway, built from source at the version that go.mod pins, and its CRDs; both are kept in vmafx's cache."""

import re
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec
import yaml

from vmafx.devcluster import paths, tools
from vmafx.devcluster.build import go_build
from vmafx.devcluster.errors import BinariesUnavailable
from vmafx.devcluster.progress import PlainProgress, ProgressReporter, duration

SOURCES = Path(__file__).parent  # holds go.mod and go.sum
MODULE = "github.com/envoyproxy/gateway"
CRD_FOLDERS = {  # by module
    "sigs.k8s.io/gateway-api": "config/crd/standard",
    MODULE: "charts/gateway-helm/charts/crds/crds/generated",
}


class EnvoyGatewayFiles(msgspec.Struct, frozen=True):
    """The folder in the cache with the binary and the CRDs."""

    folder: Path

    @property
    def binary(self) -> Path:
        return self.folder / "envoy-gateway"

    def crds(self) -> list[dict[str, Any]]:
        return msgspec.json.decode((self.folder / "crds.json").read_bytes(), type=list[dict[str, Any]])


def find_envoy_gateway(progress: ProgressReporter) -> EnvoyGatewayFiles:
    """Envoy Gateway from the cache; built first if it is not there."""
    found = EnvoyGatewayFiles(paths.cache() / f"envoy-gateway-{_version()}-{paths.platform_name()}")
    with paths.folder_lock(found.folder):
        if not found.binary.exists():
            go = tools.go(progress)
            progress.step(
                f"building Envoy Gateway {_version()} from source: only once; takes 5 to 10 minutes on 2 cores"
            )
            started = time.monotonic()
            (found.folder / "crds.json").write_bytes(msgspec.json.encode(_read_crds(go)))
            errors = go_build(go, f"{MODULE}/cmd/envoy-gateway", SOURCES, found.binary, progress)
            if errors is not None:
                raise BinariesUnavailable(f"cannot build Envoy Gateway: {' '.join(errors[-3:])}")
            progress.step(f"built in {duration(time.monotonic() - started)}; the binary is in {found.folder}")
    return found


def _version() -> str:
    (version,) = re.findall(rf"^\s*{re.escape(MODULE)} (v\S+)", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    return str(version)


def _read_crds(go: Path) -> list[dict[str, Any]]:
    """The CRDs in the modules, as JSON, since parsing their 4 MB of YAML takes seconds."""
    crds: list[dict[str, Any]] = []
    for module, folder in CRD_FOLDERS.items():
        for command in (["mod", "download", module], ["list", "-m", "-f", "{{.Dir}}", module]):
            shown = subprocess.run([str(go), *command], cwd=SOURCES, capture_output=True, text=True, check=False)
            if shown.returncode != 0:
                raise BinariesUnavailable(f"cannot download {module}: {shown.stderr.strip()}")
        for path in sorted((Path(shown.stdout.strip()) / folder).glob("*.yaml")):
            documents = yaml.safe_load_all(path.read_text())
            crds += [body for body in documents if body and body.get("kind") == "CustomResourceDefinition"]
    return crds


if __name__ == "__main__":
    find_envoy_gateway(PlainProgress())
