"""Shared by the operator benchmarks: the contestants, how one is built and started, and which take part."""

import argparse
import compileall
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from bench.go_variants import VARIANTS

from vmafx.devcluster import paths, tools
from vmafx.devcluster.cluster import free_port
from vmafx.devcluster.progress import PlainProgress

HERE = Path(__file__).parent
OURS, KOPF = "vmafx-operator", "kopf"
REVISION = "vmafx-operator of "  # followed by a git revision

T = TypeVar("T")


class Contestant(NamedTuple):
    """How an operator is started, and the ports of its readiness probe and its metrics."""

    command: list[str]
    variables: dict[str, str]
    port: int
    metrics: int


def contestant(name: str) -> Contestant:
    """A contestant with free ports; start it soon."""
    port, metrics = free_port(), free_port()
    if name == OURS:
        compiled(HERE.parent / "src")
        operator = Path(sys.executable).with_name("vmafx-operator")
        flags = [f"--health-probe-bind-address=127.0.0.1:{port}", f"--metrics-bind-address=127.0.0.1:{metrics}"]
        return Contestant([str(operator), *flags, "--log-level=warn"], {}, port, metrics)
    variables = {"PROBE_ADDR": f"127.0.0.1:{port}", "METRICS_ADDR": f"127.0.0.1:{metrics}"}
    if name.startswith(REVISION):
        code = "from vmafx.operator.start import main; main()"
        flags = [f"--health-probe-bind-address=127.0.0.1:{port}", f"--metrics-bind-address=127.0.0.1:{metrics}"]
        source = compiled(export(name.removeprefix(REVISION)) / "src")
        command = [sys.executable, "-c", code, *flags, "--log-level=warn"]
        return Contestant(command, {"PYTHONPATH": str(source)}, port, metrics)
    if name == KOPF:
        return Contestant([str(build_kopf()), str(HERE / "peer-kopf" / "peer.py")], variables, port, metrics)
    return Contestant([str(build_go())], variables | VARIANTS[name], port, metrics)


def in_turns(contestants: Sequence[T], number: int) -> list[T]:
    """The order of contestants in a round; each round starts with another one."""
    first = number % len(contestants)
    return [*contestants[first:], *contestants[:first]]


def chosen(only: str, against: str, among: tuple[str, ...]) -> list[str]:
    """The contestants selected with --only (default: all) and --against; built if necessary."""
    named = [name.strip() for name in only.split(";") if name.strip()]
    names = named or ([OURS] if against else list(among))
    if unknown := [name for name in names if name not in among]:
        raise SystemExit(f"unknown contestant {unknown[0]!r}; choose from: {'; '.join(among)}")
    names += [f"{REVISION}{against}"] if against else []
    for name in names:
        contestant(name)
    return names


def add_choice(parser: argparse.ArgumentParser, among: tuple[str, ...]) -> None:
    parser.add_argument("--only", default="", help=f"contestants to run, separated by semicolons: {'; '.join(among)}")
    parser.add_argument(
        "--against", default="", metavar="REVISION",
        help="also run the operator of this git revision, such as HEAD~1 (default for --only: vmafx-operator)",
    )  # fmt: skip


def compiled(source: Path) -> Path:
    """Compile to bytecode, as in an image, so that the start is not slowed down by compilation."""
    compileall.compile_dir(source, quiet=1)
    return source


def export(revision: str) -> Path:
    """The source files of a git revision; they run with the installed dependencies."""
    resolved = subprocess.run(
        ["git", "rev-parse", "--verify", f"{revision}^{{commit}}"],
        cwd=HERE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if resolved.returncode:
        raise SystemExit(f"unknown git revision {revision!r}")
    folder = paths.cache() / "bench" / "revisions" / resolved.stdout.strip()
    if not folder.exists():
        packed = subprocess.run(
            ["git", "archive", folder.name, "src"], cwd=HERE.parent, capture_output=True, check=True
        ).stdout
        with tempfile.TemporaryDirectory() as unpacked, tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(unpacked, filter="data")
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(unpacked, folder)
    return folder


def build_go() -> Path:
    """The binary of the Go contestant, built once per version of its sources and cached."""
    sources = sorted(path for path in (HERE / "peer-go").iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    out, built_from = paths.cache() / "bench" / "peer-go", paths.cache() / "bench" / "peer-go.sha256"
    if not out.exists() or not built_from.exists() or built_from.read_text() != digest:
        log("building the Go contestant (once, 1 to 3 minutes)")
        go = tools.go(PlainProgress())
        command = [str(go), "build", "-trimpath", "-ldflags", "-s -w", "-o", str(out), "."]
        subprocess.run(command, cwd=HERE / "peer-go", env={**os.environ, "CGO_ENABLED": "0"}, check=True)
        built_from.write_text(digest)
    return out


def build_kopf() -> Path:
    """The Python of a virtual environment with kopf, created once and cached."""
    folder = paths.cache() / "bench" / "kopf"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        log("installing the kopf contestant (once, under a minute)")
        venv.create(folder, with_pip=True, clear=True)
        constraints = HERE.parent / "constraints.txt"
        packages = ["-q", "-c", str(constraints), "kopf", "uvloop", "aiohttp", "pyyaml"]
        subprocess.run([str(python), "-m", "pip", "install", *packages], check=True)
        (folder / "ready").touch()
    return python


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
