"""Builds the components with Go, at the versions pinned in go.mod and go.sum."""

import os
import re
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

import msgspec

from vmafx.devcluster import paths, tools
from vmafx.devcluster.errors import BinariesUnavailable
from vmafx.devcluster.progress import ProgressReporter, duration

PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
}
NODE_COMPONENTS = ("kubelet", "kube-proxy")  # not part of a dev cluster; used by the end-to-end tests


def build_components(names: list[str], folder: Path, progress: ProgressReporter) -> None:
    """Build each of `names` into `folder`; a failed build leaves no file."""
    if not names:
        return
    go = tools.go(progress)
    progress.step(
        f"building {', '.join(names)} {paths.kubernetes_version()} from source: "
        "only once; takes 5 to 10 minutes on 2 cores and 3 GB in Go's caches"
    )
    started = time.monotonic()
    for number, name in enumerate(names, 1):
        _build_one(go, name, folder, progress, f"{number}/{len(names)}")
    progress.step(f"built in {duration(time.monotonic() - started)}; the binaries are in {folder}")


def _build_one(go: Path, name: str, folder: Path, progress: ProgressReporter, position: str) -> None:
    started = time.monotonic()
    progress.step(f"[{position}] {name}: downloading modules and compiling")
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion={paths.kubernetes_version()}"
    errors = go_build(go, PACKAGES[name], paths.SOURCES, folder / name, progress, flags)
    if errors is not None:
        raise BinariesUnavailable(f"cannot build {name}: {_reason(errors)}")
    progress.step(f"[{position}] {name}: done in {duration(time.monotonic() - started)}")


def go_build(
    go: Path, package: str, sources: Path, output: Path, progress: ProgressReporter, flags: str = "-s -w"
) -> list[str] | None:
    """Build a package of the module in `sources` into the file `output`; returns what go printed if that failed."""
    with tempfile.TemporaryDirectory(dir=output.parent) as scratch:
        part = Path(scratch) / output.name
        command = [str(go), "build", "-v", "-trimpath", "-ldflags", flags, "-o", str(part), package]
        environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-buildvcs=false -mod=readonly"}
        with subprocess.Popen(
            command, cwd=sources, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                errors = _follow(process, output.name, progress)
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            return errors
        part.replace(output)
    return None


class GoTool(msgspec.Struct, frozen=True):
    """A program that is built from a Go module, at the version that the go.mod in `sources` requires."""

    name: str  # of the binary
    title: str  # as messages name it
    module: str
    package: str  # in the module
    sources: Path  # holds go.mod and go.sum
    minutes: str  # that the build takes on 2 cores
    flags: str = "-s -w"

    @property
    def version(self) -> str:
        (version,) = re.findall(
            rf"^\s*{re.escape(self.module)} (v\S+)", (self.sources / "go.mod").read_text(), re.MULTILINE
        )
        return str(version)

    def cached(self, progress: ProgressReporter) -> Path:
        """The path of the binary in the cache; built first if it is not there."""
        folder = paths.cache() / "tools" / f"{self.name}-{self.version}-{paths.platform_name()}"
        with paths.folder_lock(folder):
            if not (folder / self.name).exists():
                self._build(folder / self.name, progress)
        return folder / self.name

    def _build(self, output: Path, progress: ProgressReporter) -> None:
        progress.step(
            f"building {self.title} {self.version} from source: only once; takes {self.minutes} minutes on 2 cores"
        )
        started = time.monotonic()
        package = f"{self.module}/{self.package}"
        errors = go_build(tools.go(progress), package, self.sources, output, progress, self.flags)
        if errors is not None:
            raise BinariesUnavailable(
                f"cannot build {self.title}: {' '.join(errors[-3:])[-600:]}; alternatively, put `{self.name}` of "
                f"{self.module} on PATH"
            )
        progress.step(f"built in {duration(time.monotonic() - started)}; the binary is in {output.parent}")


def _follow(process: "subprocess.Popen[str]", name: str, progress: ProgressReporter) -> list[str]:
    """Show the progress of `go build -v`, which prints a line per module and package; returns all other lines."""
    counts = {"modules": 0, "packages": 0}
    errors: list[str] = []
    reader = threading.Thread(target=_count_lines, args=(process.stderr, counts, errors), daemon=True)
    reader.start()
    while reader.is_alive():
        reader.join(1.0)
        progress.detail(f"{name}: {counts['modules']} modules downloaded, {counts['packages']} packages compiled")
    return errors


def _count_lines(stream: IO[str], counts: dict[str, int], errors: list[str]) -> None:
    for line in stream:
        text = line.strip()
        if text.startswith("go: downloading "):
            counts["modules"] += 1
        elif text and " " not in text and ":" not in text:
            counts["packages"] += 1
        elif text:
            errors.append(text)


def _reason(errors: list[str]) -> str:
    """The last lines of the errors, and what to do."""
    text = " ".join(errors[-3:])[-600:] or "go build printed no reason"
    if "no space left" in text:
        return f"{text}; free about 4 GB in Go's caches (`go clean -cache -modcache` empties them)"
    if "dial tcp" in text or "lookup" in text or "timeout" in text:
        return f"{text}; cannot reach the Go module proxy: check the network, or set GOPROXY to another"
    return f"{text}; alternatively, put binaries into a folder and set KUBEBUILDER_ASSETS to it"
