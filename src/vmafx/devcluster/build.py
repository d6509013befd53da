"""Build the components from the Go module registry, with the versions pinned in go.mod and go.sum."""

import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import IO

from vmafx.devcluster import paths, tools
from vmafx.devcluster.errors import BinariesUnavailable
from vmafx.devcluster.progress import ProgressReporter, duration

PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
}


def build_components(names: list[str], folder: Path, progress: ProgressReporter) -> None:
    """Build each of `names` into `folder`, whole or not at all."""
    if not names:
        return
    go = tools.go(progress)
    progress.step(
        f"building {', '.join(names)} {paths.kubernetes_version()} from source: "
        "once, about 5 to 10 minutes on 2 cores, 3 GB in Go's caches"
    )
    started = time.monotonic()
    for number, name in enumerate(names, 1):
        _build_one(go, name, folder, progress, f"{number}/{len(names)}")
    progress.step(f"built in {duration(time.monotonic() - started)}, kept in {folder}")


def _build_one(go: Path, name: str, folder: Path, progress: ProgressReporter, position: str) -> None:
    started = time.monotonic()
    progress.step(f"[{position}] {name}: downloading modules and compiling")
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion={paths.kubernetes_version()}"
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        output = Path(scratch) / name
        command = [str(go), "build", "-v", "-trimpath", "-ldflags", flags, "-o", str(output), PACKAGES[name]]
        environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-buildvcs=false -mod=readonly"}
        with subprocess.Popen(
            command, cwd=paths.SOURCES, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                said = _follow(process, name, progress)
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            raise BinariesUnavailable(f"cannot build {name}: {_reason(said)}")
        output.replace(folder / name)
    progress.step(f"[{position}] {name}: done in {duration(time.monotonic() - started)}")


def _follow(process: "subprocess.Popen[str]", name: str, progress: ProgressReporter) -> list[str]:
    """Read what go says while it works: a line per module and package; anything else is trouble, and is kept."""
    counts = {"modules": 0, "packages": 0}
    trouble: list[str] = []
    reader = threading.Thread(target=_read, args=(process.stderr, counts, trouble), daemon=True)
    reader.start()
    while reader.is_alive():
        reader.join(1.0)
        progress.detail(f"{name}: {counts['modules']} modules downloaded, {counts['packages']} packages compiled")
    return trouble


def _read(stream: IO[str], counts: dict[str, int], trouble: list[str]) -> None:
    for line in stream:
        text = line.strip()
        if text.startswith("go: downloading "):
            counts["modules"] += 1
        elif text and " " not in text and ":" not in text:
            counts["packages"] += 1
        elif text:
            trouble.append(text)


def _reason(trouble: list[str]) -> str:
    """The lines that matter, and what to do about them."""
    text = " ".join(trouble[-3:])[-600:] or "go build gave no reason"
    if "no space left" in text:
        return f"{text}; free about 4 GB in Go's caches (`go clean -cache -modcache` empties them)"
    if "dial tcp" in text or "lookup" in text or "timeout" in text:
        return f"{text}; the Go module proxy cannot be reached: check the network, or set GOPROXY to one that can"
    return f"{text}; or put ready binaries into a folder and name it in KUBEBUILDER_ASSETS"
