"""An image as an archive in Docker's format: its configuration, its layers and its files."""

import shutil
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

HIDDEN = ".wh."  # starts the name of a file that says: this one of the layers below is gone


class Layer(NamedTuple):
    digest: str  # of the layer's files: the same in every format
    size: int  # bytes of its files
    step: str  # of the Dockerfile


class ImageArchive:
    """An archive that holds one image."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with tarfile.open(path) as archive:
            (self._manifest,) = msgspec.json.decode(_read(archive, "manifest.json"), type=list[dict[str, Any]])
            self.document: dict[str, Any] = msgspec.json.decode(_read(archive, self._manifest["Config"]))

    @property
    def names(self) -> list[str]:
        return list(self._manifest["RepoTags"])

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.document["config"])

    def layers(self) -> list[Layer]:
        """From the base upwards."""
        steps = [entry["created_by"] for entry in self.document["history"] if not entry.get("empty_layer")]
        with tarfile.open(self._path) as archive:
            sizes = []
            for name in self._manifest["Layers"]:
                with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                    sizes.append(sum(member.size for member in layer if member.isreg()))
        return [Layer(*one) for one in zip(self.document["rootfs"]["diff_ids"], sizes, steps, strict=True)]

    def unpack(self, folder: Path) -> None:
        """Write the files of the image, with their owners and modes."""
        with tarfile.open(self._path) as archive:
            for name in self._manifest["Layers"]:
                with tarfile.open(fileobj=archive.extractfile(name)) as layer:
                    for member in layer:
                        self._apply(layer, member, folder)

    @staticmethod
    def _apply(layer: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
        path = folder / member.name
        if path.name.startswith(HIDDEN):
            gone = path.with_name(path.name.removeprefix(HIDDEN))
            if gone.is_dir() and not gone.is_symlink():
                shutil.rmtree(gone)
            else:
                gone.unlink(missing_ok=True)
            return
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            path.unlink()
        layer.extract(member, folder, numeric_owner=True, filter="fully_trusted")


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None, f"{name} is no file"
    return file.read()
