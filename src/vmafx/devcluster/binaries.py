"""Binaries of the components: from $KUBEBUILDER_ASSETS, the cache, the official archives, or built from source."""

import contextlib
import hashlib
import http.client
import os
import re
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from urllib.error import URLError

import msgspec

from vmafx.devcluster import build, paths
from vmafx.devcluster.errors import BinariesUnavailable
from vmafx.devcluster.paths import DevSettings, folder_lock
from vmafx.devcluster.progress import ProgressReporter
from vmafx.settings import from_environ

IN_ENVTEST = ("etcd", "kube-apiserver")
REACH_TIMEOUT = 3.0  # seconds for a small file
STALL_TIMEOUT = 30.0  # seconds without a byte of a download
# DecodeError: a captive portal or proxy sent a page of its own.
_UNREACHABLE = (URLError, http.client.HTTPException, TimeoutError, ConnectionError, msgspec.DecodeError)


class _Archive(msgspec.Struct):
    hash: str
    selfLink: str


class _Index(msgspec.Struct):
    releases: dict[str, dict[str, _Archive]]


def fetch_archives(names: list[str], folder: Path, progress: ProgressReporter) -> None:
    """Download the binaries `names` into `folder`, as far as the servers have them and can be reached."""
    settings = from_environ(DevSettings)
    if not settings.fetch:
        return
    with contextlib.suppress(*_UNREACHABLE):
        if in_archive := [name for name in names if name in IN_ENVTEST]:
            _fetch_envtest(settings.index, in_archive, folder, progress)
        for name in names:
            if name not in IN_ENVTEST:
                _fetch_release(settings.releases, name, folder, progress)


def _fetch_envtest(index_url: str, names: list[str], folder: Path, progress: ProgressReporter) -> None:
    version = paths.kubernetes_version()
    index = msgspec.yaml.decode(_read_url(index_url), type=_Index)
    archive = index.releases.get(version, {}).get(f"envtest-{version}-{paths.platform_name()}.tar.gz")
    if archive is None:
        return
    progress.step(f"fetching {' and '.join(names)} {version} (envtest archive)")
    with (
        _download(archive.selfLink, folder, "sha512", archive.hash, progress) as file,
        tarfile.open(fileobj=file, mode="r:gz") as tar,
    ):
        for member in tar:
            name = Path(member.name).name
            if member.isfile() and name in names and (content := tar.extractfile(member)):
                _install(content, folder / name)


def _fetch_release(base: str, name: str, folder: Path, progress: ProgressReporter) -> None:
    url = f"{base}/{paths.kubernetes_version()}/bin/{paths.platform_name().replace('-', '/')}/{name}"
    checksum = _read_url(f"{url}.sha256").decode(errors="replace").strip()[:64]
    if not re.fullmatch("[0-9a-f]{64}", checksum):
        return
    progress.step(f"fetching {name} {paths.kubernetes_version()}")
    with _download(url, folder, "sha256", checksum, progress) as file:
        _install(file, folder / name)


def _read_url(url: str) -> bytes:
    with urllib.request.urlopen(_require_https(url), timeout=REACH_TIMEOUT) as response:  # noqa: S310 - scheme checked
        body: bytes = response.read(16 << 20)
        return body


@contextlib.contextmanager
def _download(url: str, folder: Path, algorithm: str, checksum: str, progress: ProgressReporter) -> Iterator[IO[bytes]]:
    """A temporary file with the content of the URL, whose checksum was verified."""
    digest, size = hashlib.new(algorithm), 0
    with tempfile.TemporaryFile(dir=folder) as file:
        with urllib.request.urlopen(_require_https(url), timeout=STALL_TIMEOUT) as response:  # noqa: S310 - scheme checked
            total = int(response.headers.get("Content-Length") or 0)
            while chunk := response.read(1 << 20):
                file.write(chunk)
                digest.update(chunk)
                size += len(chunk)
                progress.detail(f"{size >> 20} of {total >> 20} MiB")
        if digest.hexdigest() != checksum.lower():
            raise BinariesUnavailable(f"{url} does not match its published checksum; nothing was installed")
        file.seek(0)
        yield file


def _install(content: IO[bytes], path: Path) -> None:
    """Write a binary atomically."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as part:
        try:
            while chunk := content.read(1 << 20):
                part.write(chunk)
            os.fchmod(part.fileno(), 0o755)
            Path(part.name).replace(path)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise


def _require_https(url: str) -> str:
    if not url.startswith(("https://", "http://127.0.0.1:")):
        raise BinariesUnavailable(f"{url} is not an https:// URL")
    return url


def find_binaries(components: tuple[str, ...], progress: ProgressReporter) -> dict[str, Path]:
    """The path of each component's binary. Missing ones are downloaded or built, and cached."""
    found = {name: path for name in components if (path := _find(name))}
    if missing := [name for name in components if name not in found]:
        folder = paths.binaries()
        with folder_lock(folder):
            missing = [name for name in missing if not _runnable(folder / name)]
            if missing:
                fetch_archives(missing, folder, progress)
                build.build_components([name for name in missing if not _runnable(folder / name)], folder, progress)
        found |= {name: folder / name for name in components if name not in found}
    return found


def _find(name: str) -> Path | None:
    if assets := from_environ(DevSettings).assets:
        path = Path(assets) / name
        if _runnable(path):
            return path
        if not Path(assets).is_dir():
            raise BinariesUnavailable(f"KUBEBUILDER_ASSETS is {assets}, which is not a folder; correct or unset it")
    path = paths.binaries() / name
    return path if _runnable(path) else None


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
