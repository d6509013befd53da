"""Images from one program, for the sandbox of each Pod and for tests."""

import hashlib
import io
import tarfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vmafx.devcluster.paths import platform_name

PROBE_IMAGE = "localhost/probe:1"  # go/probe: its arguments are those of the container


def pack(path: Path, name: str, program: Path, arguments: Sequence[str] = (), libraries: Sequence[Path] = ()) -> Path:
    """Write an image (docker-archive) whose entrypoint is a program; `name` is its only name.

    A program that is not static needs its libraries, which get the same paths as here.
    """
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("etc", "tmp"):
            _add(tar, folder, tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755)
        _add(tar, program.name, tarfile.REGTYPE, 0o755, program.read_bytes())
        for library in libraries:
            _add(tar, str(library).lstrip("/"), tarfile.REGTYPE, 0o755, library.read_bytes())
    config = msgspec.json.encode({
        "architecture": platform_name().partition("-")[2],
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"], "Cmd": list(arguments), "Env": ["PATH=/"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer.getvalue()).hexdigest()}"]},
    })  # fmt: skip
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        _add(tar, "layer.tar", tarfile.REGTYPE, 0o644, layer.getvalue())
        _add(tar, "config.json", tarfile.REGTYPE, 0o644, config)
        _add(tar, "manifest.json", tarfile.REGTYPE, 0o644, msgspec.json.encode(manifest))
    return path


def _add(tar: tarfile.TarFile, name: str, kind: bytes, mode: int, content: bytes = b"") -> None:
    member = tarfile.TarInfo(name)
    member.type, member.mode, member.size = kind, mode, len(content)
    tar.addfile(member, io.BytesIO(content))
