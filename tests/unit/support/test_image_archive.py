"""Layers of images: what an upper one hides is gone, and none writes outside the folder."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.image.archive import apply


def layer(files: Mapping[str, str | None]) -> tarfile.TarFile:
    """A layer: by path the text of a file, `-> TARGET` or `=> TARGET` for a link or hard link, None for a folder."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            if text is None:
                member.type, member.mode = tarfile.DIRTYPE, 0o755
            elif text.startswith(("-> ", "=> ")):
                member.type = tarfile.SYMTYPE if text.startswith("-") else tarfile.LNKTYPE
                member.linkname = text[3:]
            else:
                member.size = len(text)
            tar.addfile(member, io.BytesIO((text or "").encode()) if member.size else None)
    written.seek(0)
    return tarfile.open(fileobj=written)


def shown(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_an_upper_layer_replaces_files_and_hides_others(tmp_path: Path) -> None:
    apply(layer({"a": None, "a/one": "1", "a/two": "2", "b": "3", "c": None, "c/one": "4"}), tmp_path)
    apply(layer({"a/one": "new", "a/.wh.two": "", ".wh.b": "", "c": "a file now"}), tmp_path)
    assert shown(tmp_path) == {"a/one": "new", "c": "a file now"}


@pytest.mark.parametrize("first", ["a/.wh..wh..opq", "a/new"])
def test_an_opaque_folder_has_only_the_files_of_its_own_layer(tmp_path: Path, first: str) -> None:
    apply(layer({"a": None, "a/old": "1", "a/more": None, "a/more/old": "2", "b": "3"}), tmp_path)
    files = {"a/.wh..wh..opq": "", "a/new": "4"}
    apply(layer({first: files[first], **files}), tmp_path)
    assert shown(tmp_path) == {"a/new": "4", "b": "3"}


@pytest.mark.parametrize(
    "files",
    [
        {"out": "-> {outside}", "out/victim": "changed"},
        {"out": "-> {outside}", "out/.wh.victim": ""},
        {"out": "-> ../outside", "out/.wh..wh..opq": ""},
        {"../outside/victim": "changed"},
        {"{outside}/victim": "changed"},
        {"stolen": "=> ../outside/victim"},
    ],
    ids=["file", "whiteout", "opaque", "..", "absolute", "hard link"],
)
def test_nothing_outside_the_folder_is_touched(tmp_path: Path, files: dict[str, str]) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "image"
    for one in (outside, folder):
        one.mkdir()
    (outside / "victim").write_text("kept")
    layers = [layer({name.format(outside=outside): text.format(outside=outside)}) for name, text in files.items()]
    for lower in layers[:-1]:
        apply(lower, folder)
    with pytest.raises(ValueError, match="is outside the image"):
        apply(layers[-1], folder)
    assert shown(outside) == {"victim": "kept"}
    assert not (folder / "stolen").exists()


def test_a_link_in_the_same_layer_is_not_followed_either(tmp_path: Path) -> None:
    folder, outside = tmp_path / "image", tmp_path / "outside"
    for one in (outside, folder):
        one.mkdir()
    with pytest.raises(ValueError, match="is outside the image"):
        apply(layer({"out": f"-> {outside}", "out/new": "text"}), folder)
    assert list(outside.iterdir()) == []
