"""A development cluster in a state folder: starts the components, waits until they are ready, stops them."""

import errno
import fcntl
import http.client
import random
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from vmafx.devcluster import binaries, components, paths, pki, process
from vmafx.devcluster.components import APISERVER, CONTROLLER_MANAGER, SCHEDULER
from vmafx.devcluster.errors import ComponentFailed, DevClusterError, InsufficientDisk, PortInUse
from vmafx.devcluster.progress import PlainProgress, ProgressReporter
from vmafx.kube import load_config

READY_TIMEOUT = 180.0  # seconds; a component that has ended is noticed at once
MIN_FREE_BYTES = 256 << 20  # etcd preallocates 128 MB
PORT_TRIES = 5
ReadinessCheck = tuple[str, int, str]  # a component, and the port and path that respond 200 once it is ready


def free_port() -> int:
    """A loopback port that is free at this moment.

    Below the range of ephemeral ports: an outgoing connection could take such a port while a server restarts, even the
    connection of a client that tries to reach that server.
    """
    for port in random.sample(range(20_000, 32_768), 100):
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise ComponentFailed("no free port between 20000 and 32767 on 127.0.0.1")


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which components to run. `tethered`: the cluster ends with the process that started it, for any reason."""

    without: frozenset[str] = frozenset()
    port: int | None = None
    tethered: bool = False

    def names(self) -> tuple[str, ...]:
        return tuple(name for name in components.ALL if name not in self.without)


class ClusterState(msgspec.Struct, frozen=True):
    """The content of a state folder's state.json."""

    version: str
    server: str
    processes: tuple[process.ComponentProcess, ...]
    ready: bool = False  # stays false if the start was interrupted

    def broken(self) -> list[str]:
        """Components whose process has ended."""
        return [component.name for component in self.processes if not component.alive()]

    def usable(self) -> bool:
        return self.ready and not self.broken()


class DevCluster:
    """The cluster in a state folder. As a context manager: up on entry, down on exit."""

    def __init__(
        self, folder: Path, options: ClusterOptions | None = None, progress: ProgressReporter | None = None
    ) -> None:
        self.folder = folder
        self.options = options or ClusterOptions(tethered=True)
        self._progress = progress or PlainProgress()

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.down()

    def state(self) -> ClusterState | None:
        """The state of the cluster in this folder; None if there is none."""
        try:
            return msgspec.json.decode((self.folder / "state.json").read_bytes(), type=ClusterState)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (msgspec.DecodeError, OSError) as error:
            raise DevClusterError(f"cannot read {self.folder / 'state.json'}: {error}; delete {self.folder}") from error

    def up(self, pick_port: Callable[[], int] = free_port) -> bool:
        """Start the cluster and wait until it is ready; False if it is running already.

        A stale cluster, with components that have ended, is removed first.
        """
        if self.options.tethered and threading.current_thread() is not threading.main_thread():
            raise DevClusterError("a tethered cluster ends with the thread that starts it: start it in the main thread")
        with self._locked():
            if state := self.state():
                if state.usable():
                    self._check_options(state)
                    return False
                self._progress.step(f"cleaning up a stale cluster in {self.folder}")
            elif self.folder.exists() and any(self.folder.iterdir()):
                raise DevClusterError(f"{self.folder} is not empty and does not hold a cluster; choose another folder")
            self._remove()
            self._start_with_retries(binaries.find_binaries(self.options.names(), self._progress), pick_port)
        return True

    def _start_with_retries(self, found: dict[str, Path], pick_port: Callable[[], int]) -> None:
        """Start the components; retry on other ports if another process took one meanwhile."""
        for number in range(1, PORT_TRIES + 1):
            try:
                self._start(found, pick_port)
            except PortInUse as error:
                if f":{self.options.port}" in str(error):
                    raise ComponentFailed(f"{error}; choose another with --port") from error
                if number == PORT_TRIES:
                    raise
            else:
                return

    def _check_options(self, state: ClusterState) -> None:
        """Refuse a running cluster that lacks a component or has another port than the options ask for."""
        running = {component.name for component in state.processes}
        if missing := [name for name in self.options.names() if name not in running]:
            raise DevClusterError(f"{self.folder.name!r} runs without {', '.join(missing)}; take it down first")
        if self.options.port is not None and not state.server.endswith(f":{self.options.port}"):
            raise DevClusterError(f"{self.folder.name!r} runs at {state.server}; take it down first")

    def down(self) -> bool:
        """Stop the cluster and delete its folder; False if there was none."""
        if not self.folder.exists():
            return False
        with self._locked():
            return self._remove()

    def _start(self, found: dict[str, Path], pick_port: Callable[[], int]) -> None:
        """Start all components; a failure stops them and deletes the folder."""
        running: list[process.ComponentProcess] = []
        try:
            self._check_disk()
            ports = self._ports(pick_port)
            server = f"https://127.0.0.1:{ports[APISERVER]}"
            pki.write_credentials(self.folder, server)
            (self.folder / "logs").mkdir()
            for name in self.options.names():
                command = components.command(name, found[name], ports.get(name, 0), without=self.options.without)
                running.append(process.start_component(name, command, self.folder, tethered=self.options.tethered))
                self._write_state(server, running)
                if name == APISERVER:  # the others need it
                    self._wait_ready(running, [(APISERVER, ports[APISERVER], "/readyz")])
            self._wait_ready(running, _readiness_checks(ports))
            self._write_state(server, running, ready=True)
        except BaseException as error:
            for component in reversed(running):  # also one that could not be written to state.json
                component.stop()
            self._remove()
            if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES}:
                raise InsufficientDisk(f"cannot write {self.folder}: {error.strerror}") from error
            raise

    def _ports(self, pick_port: Callable[[], int]) -> dict[str, int]:
        ports = {
            name: pick_port() for name in (APISERVER, CONTROLLER_MANAGER, SCHEDULER) if name in self.options.names()
        }
        if self.options.port is not None:
            ports[APISERVER] = self.options.port
        return ports

    def _wait_ready(self, running: list[process.ComponentProcess], waiting: list[ReadinessCheck]) -> None:
        deadline = time.monotonic() + READY_TIMEOUT
        tls = load_config(self.kubeconfig).tls
        while waiting:
            for component in running:
                process.check_running(component, self.folder)
            waiting = [check for check in waiting if not _is_ready(check, tls)]
            if waiting and time.monotonic() > deadline:
                name = waiting[0][0]
                error = process.last_error(self.folder / "logs" / f"{name}.log")
                raise ComponentFailed(f"{name} was not ready within {READY_TIMEOUT:.0f} s; its last error: {error}")
            if waiting:
                time.sleep(0.05)

    def _write_state(self, server: str, running: list[process.ComponentProcess], *, ready: bool = False) -> None:
        """Written after each start, so that `down` finds every process even if this one is killed."""
        state = ClusterState(paths.kubernetes_version(), server, tuple(running), ready)
        part = self.folder / "state.json.part"
        part.write_bytes(msgspec.json.encode(state))
        part.replace(self.folder / "state.json")

    def _check_disk(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        free = shutil.disk_usage(self.folder).free
        if free < MIN_FREE_BYTES:
            raise InsufficientDisk(
                f"{self.folder} has {free >> 20} MiB free, etcd needs {MIN_FREE_BYTES >> 20}: free some space"
            )

    def _remove(self) -> bool:
        """Stop the components, last started first, and delete the folder; False if there was none."""
        state = self.state()
        for component in reversed(state.processes if state else ()):
            component.stop()
        existed = self.folder.exists()
        shutil.rmtree(self.folder, ignore_errors=True)
        return existed

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock that serializes `up` and `down` of one folder."""
        path = self.folder.with_name(f".{self.folder.name}.lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = path.open("w")
        except OSError as error:
            raise InsufficientDisk(f"cannot write {path}: {error.strerror}") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _readiness_checks(ports: dict[str, int]) -> list[ReadinessCheck]:
    """The checks that must succeed before the cluster is ready."""
    checks = [(name, ports[name], "/healthz") for name in (CONTROLLER_MANAGER, SCHEDULER) if name in ports]
    if CONTROLLER_MANAGER in ports:
        # The API server refuses Pods until the default service account exists.
        checks.append((CONTROLLER_MANAGER, ports[APISERVER], "/api/v1/namespaces/default/serviceaccounts/default"))
    return checks


def _is_ready(check: ReadinessCheck, tls: ssl.SSLContext | None) -> bool:
    name, port, path = check
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=tls)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except ssl.SSLCertVerificationError as error:
        raise ComponentFailed(f"{name} has an untrusted certificate: {error.verify_message}") from error
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
