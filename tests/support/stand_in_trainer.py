"""A program that starts like `vmafx trainer` and serves a status that counts its starts: for tests of the kubelet."""

import json
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

FOLDER = Path(os.environ["VMAFX_TRAINER_DIR"])
CONFIG = json.loads(os.environ["VMAFX_TRAINING"])


def count_start() -> int:
    """The number of starts on this volume, this one included."""
    file = FOLDER / "starts"
    starts = int(file.read_text()) + 1 if file.exists() else 1
    file.write_text(str(starts))
    return starts


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        registry = Path(os.environ.get("DOCKER_CONFIG", "/none")) / "config.json"
        details = {"key": os.environ["VMAFX_SAMPLES_KEY"], "registry": registry.exists() and registry.read_text()}
        status = {
            "phase": "Paused" if CONFIG["paused"] else "Running",
            "samples": STARTS,
            "message": json.dumps(details),
        }
        body = json.dumps(status).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    assert sys.argv[1:] == ["trainer"], sys.argv
    STARTS = count_start()
    host, _, port = os.environ["VMAFX_TRAINER_LISTEN"].rpartition(":")
    HTTPServer((host, int(port)), Handler).serve_forever()
