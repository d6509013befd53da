"""The components' binaries: from $KUBEBUILDER_ASSETS, the cache, the official archives, or a build from source."""

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
REACH_TIMEOUT = 3.0
STALL_TIMEOUT = 30.0
# A page that somebody in between put in its place counts as not reached, too.
_UNREACHABLE = (URLError, http.client.HTTPException, TimeoutError, ConnectionError, msgspec.DecodeError)


class _Archive(msgspec.Struct):
    hash: str
    selfLink: str


class _Index(msgspec.Struct):
    releases: dict[str, dict[str, _Archive]]


def fetch_archives(names: list[str], folder: Path, progress: ProgressReporter) -> None:
    """Fetch what can be fetched of `names` into `folder`; not reaching anybody is no error."""
    settings = from_environ(DevSettings)
    if not settings.fetch:
        return
    with contextlib.suppress(*_UNREACHABLE):
        if wanted := [name for name in names if name in IN_ENVTEST]:
            _fetch_envtest(settings.index, wanted, folder, progress)
        for name in names:
            if name not in IN_ENVTEST:
                _fetch_release(settings.releases, name, folder, progress)


def _fetch_envtest(index_url: str, names: list[str], folder: Path, progress: ProgressReporter) -> None:
    version = paths.kubernetes_version()
    index = msgspec.yaml.decode(_small(index_url), type=_Index)
    archive = index.releases.get(version, {}).get(f"envtest-{version}-{paths.platform_name()}.tar.gz")
    if archive is None:
        return
    progress.step(f"fetching {' and '.join(names)} {version} (envtest archive)")
    with (
        _download(archive.selfLink, folder, "sha512", archive.hash, progress) as whole,
        tarfile.open(fileobj=whole, mode="r:gz") as tar,
    ):
        for member in tar:
            name = Path(member.name).name
            if member.isfile() and name in names and (content := tar.extractfile(member)):
                _install(content, folder / name)


def _fetch_release(base: str, name: str, folder: Path, progress: ProgressReporter) -> None:
    url = f"{base}/{paths.kubernetes_version()}/bin/{paths.platform_name().replace('-', '/')}/{name}"
    checksum = _small(f"{url}.sha256").decode(errors="replace").strip()[:64]
    if not re.fullmatch("[0-9a-f]{64}", checksum):
        return
    progress.step(f"fetching {name} {paths.kubernetes_version()}")
    with _download(url, folder, "sha256", checksum, progress) as whole:
        _install(whole, folder / name)


def _small(url: str) -> bytes:
    with urllib.request.urlopen(_checked(url), timeout=REACH_TIMEOUT) as answer:  # noqa: S310 - scheme checked
        body: bytes = answer.read(16 << 20)
        return body


@contextlib.contextmanager
def _download(url: str, folder: Path, algorithm: str, checksum: str, progress: ProgressReporter) -> Iterator[IO[bytes]]:
    digest, size = hashlib.new(algorithm), 0
    with tempfile.TemporaryFile(dir=folder) as whole:
        with urllib.request.urlopen(_checked(url), timeout=STALL_TIMEOUT) as answer:  # noqa: S310 - scheme checked
            total = int(answer.headers.get("Content-Length") or 0)
            while chunk := answer.read(1 << 20):
                whole.write(chunk)
                digest.update(chunk)
                size += len(chunk)
                progress.detail(f"{size >> 20} of {total >> 20} MiB")
        if digest.hexdigest() != checksum.lower():
            raise BinariesUnavailable(f"{url} has not the checksum that was published for it; nothing was installed")
        whole.seek(0)
        yield whole


def _install(content: IO[bytes], path: Path) -> None:
    """Put a binary in its place whole or not at all."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as part:
        try:
            while chunk := content.read(1 << 20):
                part.write(chunk)
            os.fchmod(part.fileno(), 0o755)
            Path(part.name).replace(path)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise


def _checked(url: str) -> str:
    if not url.startswith(("https://", "http://127.0.0.1:")):
        raise BinariesUnavailable(f"{url} is no https:// address")
    return url


def find_binaries(components: tuple[str, ...], progress: ProgressReporter) -> dict[str, Path]:
    """A path for each component. Slow only the first time: what is fetched or built stays in the cache."""
    found = {name: path for name in components if (path := _present(name))}
    if missing := [name for name in components if name not in found]:
        folder = paths.binaries()
        with folder_lock(folder):
            missing = [name for name in missing if not _runnable(folder / name)]
            if missing:
                fetch_archives(missing, folder, progress)
                build.build_components([name for name in missing if not _runnable(folder / name)], folder, progress)
        found |= {name: folder / name for name in components if name not in found}
    return found


def _present(name: str) -> Path | None:
    if assets := from_environ(DevSettings).assets:
        path = Path(assets) / name
        if _runnable(path):
            return path
        if not Path(assets).is_dir():
            raise BinariesUnavailable(
                f"KUBEBUILDER_ASSETS names {assets}, which is no folder; unset it or put it right"
            )
    path = paths.binaries() / name
    return path if _runnable(path) else None


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
