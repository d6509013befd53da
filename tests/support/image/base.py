"""The base of the image, debian:trixie-slim, made with debootstrap where no registry can be reached."""

import subprocess
import tempfile
from pathlib import Path

from tests.support.image.buildah import OPTIONS, Buildah, BuildFailed, follow
from vmafx.devcluster.progress import ProgressReporter

NAME = "docker.io/library/debian:trixie-slim"  # what FROM debian:trixie-slim means
MIRROR = "http://deb.debian.org"
SUITE = "trixie"
ARCHIVE_KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCES = f"""\
Types: deb
URIs: {MIRROR}/debian
Suites: {SUITE} {SUITE}-updates
Components: main
Signed-By: {ARCHIVE_KEY}

Types: deb
URIs: {MIRROR}/debian-security
Suites: {SUITE}-security
Components: main
Signed-By: {ARCHIVE_KEY}
"""
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
    """Make the base, if the storage does not have it."""
    if buildah.has(NAME):
        return
    progress.step(f"making the base {NAME} with debootstrap: only once; takes a minute")
    with tempfile.TemporaryDirectory() as folder:
        root, context = Path(folder) / "root", Path(folder) / "context"
        done = follow(["debootstrap", "--variant=minbase", SUITE, str(root), f"{MIRROR}/debian"], progress)
        if done.returncode != 0:
            raise BuildFailed(f"debootstrap failed: {done.stdout.strip()}")
        slim(root)
        context.mkdir()
        (context / "Dockerfile").write_text(DOCKERFILE)
        _run("tar", "-C", str(root), "--numeric-owner", "--sort=name", "-cf", str(context / "base.tar"), ".")
        buildah.run("buildah", "bud", *OPTIONS, "--timestamp", "0", "-t", NAME, str(context))


def slim(root: Path) -> None:
    """Make of a fresh system what Debian's slim images are."""
    (root / "etc/apt/sources.list").unlink()
    (root / "etc/apt/sources.list.d/debian.sources").write_text(SOURCES)
    (root / "etc/dpkg/dpkg.cfg.d/slim").write_text(NO_DOCUMENTATION)
    for pattern in UNWANTED:
        _run("rm", "-rf", *map(str, root.glob(pattern)))
    _run("find", str(root / "usr/share/doc"), "-type", "f,l", "!", "-name", "copyright", "-delete")
    _run("find", str(root / "usr/share/doc"), "-type", "d", "-empty", "-delete")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=120)
