"""Real object stores: a gateway with the API of S3, and what else runs as a server built from source."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.support.waiting import until
from vmafx.devcluster import paths, tools
from vmafx.devcluster.cluster import free_port
from vmafx.devcluster.progress import PlainProgress
from vmafx.process import tether

USER, SECRET = "user", "S3CRETkey"


def built(module: str, version: str) -> Path:
    """A server written in Go: from PATH, or built once into the cache."""
    name = module.rpartition("/")[2]
    if on_path := shutil.which(name):
        return Path(on_path)
    folder = paths.cache() / "tools" / f"{name}-{version}"
    with paths.folder_lock(folder):
        if not (folder / name).exists():
            go = tools.go(PlainProgress())
            environment = {**os.environ, "GOBIN": str(folder), "GOFLAGS": "", "CGO_ENABLED": "0"}
            subprocess.run([str(go), "install", f"{module}@{version}"], cwd="/", env=environment, check=True)
    return folder / name


def running(command: list[str], folder: Path, port: int) -> Iterator[int]:
    """Runs a server until the end of the test; yields once it accepts connections."""
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(tether.tethered(command), stdout=log, stderr=log) as server,
    ):
        try:
            until(lambda: answers(port), f"{command[0]} answers")
            yield port
        finally:
            server.terminate()


def answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def s3_gateway(folder: Path) -> Iterator[int]:
    """An S3 server over folder/data: its folders are buckets, its files objects; yields the port once it answers."""
    program, port = built("github.com/versity/versitygw/cmd/versitygw", "v1.8.0"), free_port()
    where = ["--port", f"127.0.0.1:{port}", "--access", USER, "--secret", SECRET, "--quiet"]
    yield from running([str(program), *where, "posix", str(folder / "data")], folder, port)


def s3_variables(port: int, folder: Path) -> dict[str, str]:
    """The environment of a client with valid credentials, and no others."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": USER,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(folder / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
    }
