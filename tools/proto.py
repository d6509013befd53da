"""Writes src/vmafx/wire from proto/; with --check it writes nothing, and ends with exit code 1 if a file differs."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = "vmafx/wire"  # what the generated modules are imported from
SOURCES = sorted((ROOT / "proto").rglob("*.proto"))


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        made = generate(Path(folder))
    target = Path("src") / PACKAGE
    there = {path.name: path.read_bytes() for path in (ROOT / target).glob("*_pb2*")}
    different = sorted(name for name in made.keys() | there.keys() if made.get(name) != there.get(name))
    if arguments == ["--check"]:
        for name in different:
            print(f"{target / name} differs from what `make proto` writes", file=sys.stderr)
        if different:
            print("run `make proto` and commit the result", file=sys.stderr)
            return 1
        print(f"{len(made)} files are up to date")
        return 0
    for name in different:
        if name in made:
            (ROOT / target / name).write_bytes(made[name])
        else:
            (ROOT / target / name).unlink()
        print(f"{'wrote' if name in made else 'removed'} {target / name}")
    return 0


def generate(folder: Path) -> dict[str, bytes]:
    """What the compiler makes of all of proto/, by file name.

    It is told that the sources lie where the package is, or the modules would import each other from somewhere else.
    """
    outputs = {"python": "", "grpc_python": "", "mypy": "quiet:", "mypy_grpc": "quiet,only_async:"}
    command = [sys.executable, "-m", "grpc_tools.protoc"]
    command += [f"-I{PACKAGE}={parent}" for parent in sorted({path.parent for path in SOURCES})]
    command += [f"--{kind}_out={options}{folder}" for kind, options in outputs.items()]
    command += [f"{PACKAGE}/{path.name}" for path in SOURCES]
    beside = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    if subprocess.run(command, env=beside, check=False).returncode != 0:
        sys.exit("error: the compiler refuses what is in proto/; it says why above")
    return {path.name: path.read_bytes() for path in (folder / PACKAGE).iterdir()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
