"""The components' binaries: $KUBEBUILDER_ASSETS, the cache, the official archives, or a build from source."""

import os
from pathlib import Path

from vmafx.devcluster import archives, build, places
from vmafx.devcluster.errors import NoBinaries
from vmafx.devcluster.places import only_one
from vmafx.devcluster.progress import Progress
from vmafx.devcluster.variables import DevSettings
from vmafx.settings import from_environ


def find(components: tuple[str, ...], progress: Progress) -> dict[str, Path]:
    """A path for each component. Slow only the first time: what is fetched or built stays in the cache."""
    found = {name: path for name in components if (path := _present(name))}
    if missing := [name for name in components if name not in found]:
        folder = places.binaries()
        with only_one(folder):
            missing = [name for name in missing if not _runnable(folder / name)]
            if missing:
                archives.fetch(missing, folder, progress)
                build.build([name for name in missing if not _runnable(folder / name)], folder, progress)
        found |= {name: folder / name for name in components if name not in found}
    return found


def _present(name: str) -> Path | None:
    if assets := from_environ(DevSettings).assets:
        path = Path(assets) / name
        if _runnable(path):
            return path
        if not Path(assets).is_dir():
            raise NoBinaries(f"KUBEBUILDER_ASSETS names {assets}, which is no folder; unset it or put it right")
    path = places.binaries() / name
    return path if _runnable(path) else None


def _runnable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
