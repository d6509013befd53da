"""The registry as a process: it listens on 127.0.0.1 without TLS, and keeps its content in a state folder."""

import http.client
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from vmafx.devcluster.cluster import free_port
from vmafx.devcluster.errors import ComponentFailed
from vmafx.devcluster.process import ComponentProcess, check_running, start_component

READY_TIMEOUT = 30.0  # seconds


class OciRegistry:
    """A registry that can be stopped and started again, at the same address and with the same content."""

    def __init__(self, binary: Path, folder: Path, auth: Mapping[str, Any] | None = None) -> None:
        """`auth`: that part of the registry's configuration. Without it, everyone may push."""
        self.folder = folder
        self._binary, self._auth = binary, auth
        self._port = free_port()
        self._process: ComponentProcess | None = None

    @property
    def address(self) -> str:
        """HOST:PORT, as a reference starts with it."""
        return f"127.0.0.1:{self._port}"

    @property
    def content(self) -> Path:
        """The folder of the blobs."""
        return self.folder / "content"

    def start(self) -> None:
        """Start the process, and wait until it answers. Raises ComponentFailed."""
        (self.folder / "logs").mkdir(parents=True, exist_ok=True)
        (self.folder / "config.yaml").write_bytes(configuration(self.address, self.content, self._auth))
        command = [str(self._binary), "serve", str(self.folder / "config.yaml")]
        self._process = start_component("registry", command, self.folder, tethered=True)
        deadline = time.monotonic() + READY_TIMEOUT
        while not self._answers():
            check_running(self._process, self.folder)
            if time.monotonic() > deadline:
                self.stop()
                raise ComponentFailed(f"the registry does not answer at {self.address} after {READY_TIMEOUT:g} s")
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", "/v2/")
            return connection.getresponse().status in {200, 401}
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def configuration(address: str, content: Path, auth: Mapping[str, Any] | None = None) -> bytes:
    """The content of config.yaml: JSON, which is YAML too."""
    config: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": str(content)}, "delete": {"enabled": True}},
        "http": {"addr": address},
    }
    if auth is not None:
        config["auth"] = auth
    return msgspec.json.encode(config)
