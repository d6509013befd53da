"""The image under test: docker/Dockerfile.operator, built by Debian's buildah on a base made with debootstrap.

`python -m tests.e2e.image` builds it before the tests, which have a time limit, and prints where it is. It is kept in
vmafx's cache until something changes that it is built from, or a month ends.
"""

import argparse
import hashlib
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.cluster.errors import UNSUITABLE
from tests.support.image import base, buildah, network
from tests.support.image.archive import ImageArchive
from tests.support.image.buildah import OPTIONS, Buildah, BuildFailed, missing_requirement
from tests.support.project import ROOT
from vmafx.devcluster import paths
from vmafx.devcluster.progress import PlainProgress, ProgressReporter, duration

IMAGE = "docker.io/library/vmafx-operator:dev"  # what Kubernetes makes of vmafx-operator:dev
PROGRAM = ROOT / "docker" / "build"
TIME = 1_767_225_600  # 2026-01-01, of all files: so the same inputs give the same layers
REVISION, SOURCE = "0" * 40, "https://git.example.com/vmafx"  # labels that do not change with every commit
VARIANTS = ("cpu", "operator")  # those that can be built everywhere


def full_name(variant: str = "cpu") -> str:
    return IMAGE if variant == "cpu" else f"{IMAGE}-{variant}"


def built_image(variant: str = "cpu", progress: ProgressReporter | None = None) -> Path:
    """The archive of the image, which `ctr images import` takes; built first if it is not in the cache.

    Raises BuildFailed. `missing_requirement()` says whether this machine can build images.
    """
    progress = progress or PlainProgress()
    folder = paths.cache() / "image"
    with paths.folder_lock(folder):
        archive = folder / f"{variant}-{_digest(variant)}" / "image.tar"
        if not archive.exists():
            started = time.monotonic()
            build(variant, archive, progress)
            _remove_others(archive)
            progress.step(f"built in {duration(time.monotonic() - started)}: {archive}")
    return archive


def bill_of_materials(archive: Path) -> Path:
    """The bill of materials that was made with the image."""
    (found,) = archive.parent.glob("*.cdx.json")
    return found


def image_storage(progress: ProgressReporter) -> Buildah:
    return Buildah(paths.cache() / "image" / "storage", progress)


def build(variant: str, archive: Path, progress: ProgressReporter, *options: str) -> None:
    """Build the image into an archive, with its bill of materials beside it. Hold the lock of the cache's folder."""
    images = image_storage(progress)
    images.shrink()
    base.make_base(images, progress)
    progress.step(f"building {full_name(variant)}: takes 2 to 4 minutes on 2 cores, less after a change of vmafx alone")
    archive.parent.mkdir(exist_ok=True)
    environment = {
        "BUILDER": "buildah", "VARIANT": variant, "IMAGE": IMAGE, "DIST": str(archive.parent),
        "SOURCE_DATE_EPOCH": str(TIME), "REVISION": REVISION, "SOURCE": SOURCE,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as mounted:
        home, sources = Path(mounted) / "home", Path(mounted) / "sources"
        home.mkdir()
        network.write_home(home)
        sources.write_text(network.sources(network.debian_mirrors()))
        volumes = [f"--volume={home}:{network.HOME}:ro", f"--volume={sources}:{network.SOURCES}:ro"]
        images.run(str(PROGRAM), *OPTIONS, *volumes, *options, environment=environment)
    images.save(full_name(variant), archive)


def context() -> Iterator[Path]:
    """The files that an image is built from, in order; .dockerignore names them."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    for name in sorted(line[1:] for line in lines if line.startswith("!")):
        path = ROOT / name
        files = (file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        yield from sorted(file for file in files if "__pycache__" not in file.parts)


def _digest(variant: str) -> str:
    """Of all that the image depends on."""
    hashed = hashlib.sha256(f"{base.version()} {variant}".encode())
    builders = [Path(str(module.__file__)) for module in (base, buildah, network)]
    for file in [
        Path(__file__),
        *builders,
        PROGRAM,
        ROOT / "docker" / "Dockerfile.operator",
        ROOT / ".dockerignore",
        *context(),
    ]:
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        hashed.update(f"{content} {file.stat().st_mode & 0o111:o} {file.relative_to(ROOT)}\n".encode())
    return hashed.hexdigest()[:16]


def _remove_others(archive: Path) -> None:
    """Remove the images of the same variant that were built before."""
    variant = archive.parent.name.partition("-")[0]
    for folder in archive.parent.parent.glob(f"{variant}-*"):
        if folder != archive.parent:
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.image", description="Build the image under test.")
    parser.add_argument("--variant", choices=VARIANTS, default="cpu")
    variant = parser.parse_args(given).variant
    if reason := missing_requirement():
        print(f"error: this machine cannot build the image: {reason}", file=sys.stderr)
        return UNSUITABLE
    try:
        archive = built_image(variant)
    except BuildFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    layers = ImageArchive(archive).layers()
    for layer in layers:
        print(f"{layer.size / 1e6:8.1f} MB  {layer.digest[7:19]}  {' '.join(layer.step.split())[:80]}")
    print(f"{sum(layer.size for layer in layers) / 1e6:8.1f} MB  {full_name(variant)}\n{archive}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
