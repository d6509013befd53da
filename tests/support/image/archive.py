"""An image as an archive in Docker's format: its configuration, its layers and its files."""

import shutil
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

WHITEOUT = ".wh."  # prefix of whiteout files, which delete a file of a lower layer
OPAQUE = ".wh..wh..opq"  # deletes all that lower layers have in its folder


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
                    apply(layer, folder)


def apply(layer: tarfile.TarFile, folder: Path) -> None:
    """Change a folder as a layer says: delete what it hides of lower layers, then write its files."""
    members = {_inside(folder, member.name): member for member in layer}
    whiteouts = [path for path in members if path.name.startswith(WHITEOUT)]
    for path in whiteouts:
        if path.name == OPAQUE:
            for hidden in path.parent.iterdir() if path.parent.is_dir() else ():
                _remove(hidden)
        else:
            _remove(path.with_name(path.name.removeprefix(WHITEOUT)))
        del members[path]
    for path, member in members.items():
        _inside(folder, member.name)  # again: a link may be there by now
        if member.islnk():
            _inside(folder, member.linkname)
        if not (member.isdir() and path.is_dir() and not path.is_symlink()):
            _remove(path)
        layer.extract(member, folder, numeric_owner=True, filter="fully_trusted")


def _inside(folder: Path, name: str) -> Path:
    """The path of a file of a layer. Raises ValueError if it is outside the folder, also by a link."""
    path = folder / name
    if path != folder and (".." in path.parts or not path.parent.resolve().is_relative_to(folder.resolve())):
        raise ValueError(f"{name} is outside the image")
    return path


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _read(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    assert file is not None, f"{name} is no file"
    return file.read()
