"""Clips for Pods and agents: a web server beside the control plane of a cluster.

A clip below /held/KEY/ is sent a byte a second until the test releases KEY, so that its job runs for as long as the
test needs, on hardly any CPU.

As a program: `python -m tests.e2e.clips FOLDER ADDRESS PORT`.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.e2e.cluster.network import CONTROL_PLANE
from tests.support.project import ROOT
from tests.support.video import ffmpeg, lossless, scene
from tests.support.waiting import until
from vmafx.devcluster.process import start_component

PORT = 8000
REFERENCE, DISTORTED = "reference.mkv", "distorted.mp4"
FRAMES = 12
HELD, ASKED, RELEASED = "held", "asked", "released"
BLOCK = 1 << 16


class ClipServer:
    """A reference and a distorted clip, here and in the cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in (ASKED, RELEASED):
            (folder / name).mkdir(parents=True)
        lossless(scene(frames=FRAMES), self.reference)
        ffmpeg("-i", self.reference, "-c:v", "libx264", "-crf", "34", self.distorted)

    @property
    def reference(self) -> Path:
        return self.folder / REFERENCE

    @property
    def distorted(self) -> Path:
        return self.folder / DISTORTED

    def urls(self, held: str = "") -> dict[str, str]:
        """The clips of a job's spec; with `held`, its distorted clip arrives after `release`."""
        base = f"http://{CONTROL_PLANE}:{PORT}"
        within = f"{base}/{HELD}/{held}" if held else base
        return {"reference": f"{base}/{REFERENCE}", "distorted": f"{within}/{DISTORTED}"}

    def wait_until_asked(self, *keys: str) -> None:
        """Wait until something downloads the clips of these keys."""
        until(lambda: all((self.folder / ASKED / key).exists() for key in keys), f"{keys} are downloaded", 90)

    def times_asked(self, key: str) -> int:
        asked = self.folder / ASKED / key
        return len(asked.read_text().splitlines()) if asked.exists() else 0

    def release(self, *keys: str) -> None:
        for key in keys:
            (self.folder / RELEASED / key).touch()


@contextmanager
def serve_clips(cluster: Cluster, folder: Path) -> Iterator[ClipServer]:
    """Serve clips until the end of the block."""
    clips = ClipServer(folder)
    command = [sys.executable, "-m", "tests.e2e.clips", str(folder), str(CONTROL_PLANE), str(PORT)]
    line = cluster.command(command)
    process = start_component("clips", line, cluster.folder, tethered=True, variables={"PYTHONPATH": str(ROOT)})
    try:
        log = cluster.folder / "logs" / "clips.log"
        until(lambda: log.exists() and "serving" in log.read_text(), f"the server of clips has started: {log}", 30)
        yield clips
    finally:
        process.stop()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder: Path

    def do_GET(self) -> None:
        *directory, name = self.path.strip("/").split("/")
        path = self.folder / name
        if name not in (REFERENCE, DISTORTED) or not path.is_file():
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        content = path.read_bytes()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(ConnectionError):
            if directory:
                content = self._hold(content, directory[1])
            self.wfile.write(content)

    def _hold(self, content: bytes, key: str) -> bytes:
        """Send a byte a second until the key is released; returns the rest."""
        with (self.folder / ASKED / key).open("a") as asked:
            asked.write(f"{self.client_address[0]}\n")
        for sent in range(len(content)):
            if (self.folder / RELEASED / key).exists():
                return content[sent:]
            self.wfile.write(content[sent : sent + 1])
            time.sleep(1)
        return b""


def main() -> None:
    _Handler.folder = Path(sys.argv[1])
    with ThreadingHTTPServer((sys.argv[2], int(sys.argv[3])), _Handler) as server:
        print("serving", flush=True)  # noqa: T201
        server.serve_forever()


if __name__ == "__main__":
    main()
