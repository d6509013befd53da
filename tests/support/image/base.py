"""The base of the image, debian:trixie-slim, made with debootstrap where no registry can be reached."""

import hashlib
import subprocess
import tempfile
import time
from pathlib import Path

from tests.support.image.buildah import OPTIONS, Buildah
from tests.support.image.network import SOURCES, SUITE, debian_mirrors, public_mirrors, sources
from vmafx.devcluster.progress import ProgressReporter

NAME = "docker.io/library/debian:trixie-slim"  # what FROM debian:trixie-slim means
# The slim images of Debian leave these out, also of packages that are installed later.
NO_DOCUMENTATION = """\
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/man/*
"""
UNWANTED = (
    "usr/share/info/*", "usr/share/locale/*", "usr/share/man/*", "var/cache/apt/*", "var/cache/debconf/*-old",
    "var/cache/ldconfig/*", "var/lib/apt/lists/*", "var/log/*", "etc/resolv.conf", "etc/hostname",
)  # fmt: skip
DOCKERFILE = 'FROM scratch\nADD base.tar /\nCMD ["bash"]\n'


def make_base(buildah: Buildah, progress: ProgressReporter) -> None:
    """Make the base, if the storage does not have that of this month."""
    name = f"localhost/debian-base:{version()}"
    if buildah.has(name):
        return
    progress.step(f"making the base {NAME} with debootstrap: once a month; takes a minute")
    with tempfile.TemporaryDirectory() as folder:
        root, context = Path(folder) / "root", Path(folder) / "context"
        buildah.run("debootstrap", "--variant=minbase", SUITE, str(root), debian_mirrors().main)
        slim(root)
        context.mkdir()
        (context / "Dockerfile").write_text(DOCKERFILE)
        _run("tar", "-C", str(root), "--numeric-owner", "--sort=name", "-cf", str(context / "base.tar"), ".")
        buildah.run("buildah", "bud", *OPTIONS, "--timestamp", "0", "-t", NAME, "-t", name, str(context))


def version() -> str:
    """Another one each month, so that the base gets Debian's updates, and after a change of this file."""
    month = time.strftime("%Y-%m", time.gmtime())
    return f"{month}-{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]}"


def slim(root: Path) -> None:
    """Make of a fresh system what Debian's slim images are."""
    (root / "etc/apt/sources.list").unlink()
    (root / str(SOURCES).lstrip("/")).write_text(sources(public_mirrors()))
    (root / "etc/dpkg/dpkg.cfg.d/slim").write_text(NO_DOCUMENTATION)
    for pattern in UNWANTED:
        _run("rm", "-rf", *map(str, root.glob(pattern)))
    _run("find", str(root / "usr/share/doc"), "-type", "f,l", "!", "-name", "copyright", "-delete")
    _run("find", str(root / "usr/share/doc"), "-type", "d", "-empty", "-delete")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=120)
