"""A control plane from nothing to ready, and back to nothing."""

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

READY_TIMEOUT = 180.0  # a busy machine is slow, and one that ended is noticed at once
MIN_FREE_BYTES = 256 << 20  # etcd writes 128 MB before it says a word
PORT_TRIES = 5
ReadinessCheck = tuple[str, int, str]  # whose, and the port and path that answer 200 once it is ready


def free_port() -> int:
    """A loopback port that nobody has at this moment.

    Below those that the kernel gives to outgoing connections: one of these could take it while a server restarts, even
    the connection that is trying to reach that very server.
    """
    for port in random.sample(range(20_000, 32_768), 100):
        with socket.socket() as sock, suppress(OSError):
            sock.bind(("127.0.0.1", port))
            return port
    raise ComponentFailed("no free port between 20000 and 32767 on 127.0.0.1")


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run. `tethered`: it ends when the process that started it does, however that ends."""

    without: frozenset[str] = frozenset()
    port: int | None = None
    tethered: bool = False

    def names(self) -> tuple[str, ...]:
        return tuple(name for name in components.ALL if name not in self.without)


class ClusterState(msgspec.Struct, frozen=True):
    """What a state folder says of its cluster."""

    version: str
    server: str
    processes: tuple[process.ComponentProcess, ...]
    ready: bool = False  # false until all was started and answered; for good, if whoever started it was killed

    def broken(self) -> list[str]:
        """Components that were started and are gone."""
        return [one.name for one in self.processes if not one.alive()]

    def usable(self) -> bool:
        return self.ready and not self.broken()


class DevCluster:
    """The cluster that lives in `folder`. As a context manager: up on entry, down on exit, tethered to us."""

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
        """What was started here and not taken down; None if nothing was."""
        try:
            return msgspec.json.decode((self.folder / "state.json").read_bytes(), type=ClusterState)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (msgspec.DecodeError, OSError) as error:
            raise DevClusterError(f"cannot read {self.folder / 'state.json'}: {error}; delete {self.folder}") from error

    def up(self, pick_port: Callable[[], int] = free_port) -> bool:
        """Start it and wait until it is ready; False if it runs already, and is left as it is.

        A stale one, whose processes are gone, is cleaned away first.
        """
        if self.options.tethered and threading.current_thread() is not threading.main_thread():
            raise DevClusterError("a tethered cluster ends with the thread that starts it: start it in the main thread")
        with self._locked():
            if state := self.state():
                if state.usable():
                    self._check_wanted(state)
                    return False
                self._progress.step(f"cleaning up a stale cluster in {self.folder}")
            elif self.folder.exists() and any(self.folder.iterdir()):
                raise DevClusterError(f"{self.folder} is not empty and no cluster of ours; choose another folder")
            self._clear()
            self._start_somewhere(binaries.find_binaries(self.options.names(), self._progress), pick_port)
        return True

    def _start_somewhere(self, found: dict[str, Path], pick_port: Callable[[], int]) -> None:
        """Start, on other ports if somebody took ours in between."""
        for attempt in range(1, PORT_TRIES + 1):
            try:
                self._start(found, pick_port)
            except PortInUse as error:
                if f":{self.options.port}" in str(error):
                    raise ComponentFailed(f"{error}; choose another with --port") from error
                if attempt == PORT_TRIES:
                    raise
            else:
                return

    def _check_wanted(self, state: ClusterState) -> None:
        """A cluster that runs already will do, unless more or something else was asked for."""
        running = {one.name for one in state.processes}
        if missing := [name for name in self.options.names() if name not in running]:
            raise DevClusterError(f"{self.folder.name!r} runs without {', '.join(missing)}; take it down first")
        if self.options.port is not None and not state.server.endswith(f":{self.options.port}"):
            raise DevClusterError(f"{self.folder.name!r} runs at {state.server}; take it down first")

    def down(self) -> bool:
        """Stop it and remove its folder; False if there was nothing."""
        if not self.folder.exists():
            return False
        with self._locked():
            return self._clear()

    def _start(self, found: dict[str, Path], pick_port: Callable[[], int]) -> None:
        """Start all components; on any failure leave nothing behind."""
        running: list[process.ComponentProcess] = []
        try:
            self._check_room()
            ports = self._ports(pick_port)
            server = f"https://127.0.0.1:{ports[APISERVER]}"
            pki.write_credentials(self.folder, server)
            (self.folder / "logs").mkdir()
            for name in self.options.names():
                command = components.command(name, found[name], ports.get(name, 0), without=self.options.without)
                running.append(process.start_component(name, command, self.folder, tethered=self.options.tethered))
                self._write_state(server, running)
                if name == APISERVER:  # the others cannot do without it
                    self._wait_ready(running, [(APISERVER, ports[APISERVER], "/readyz")])
            self._wait_ready(running, _signs_of_readiness(ports))
            self._write_state(server, running, ready=True)
        except BaseException as error:
            for one in reversed(running):  # also one that the disk had no room left to tell of
                one.stop()
            self._clear()
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
            for one in running:
                process.check_running(one, self.folder)
            waiting = [sign for sign in waiting if not _answers(sign, tls)]
            if waiting and time.monotonic() > deadline:
                name = waiting[0][0]
                said = process.last_error(self.folder / "logs" / f"{name}.log")
                raise ComponentFailed(f"{name} was not ready within {READY_TIMEOUT:.0f} s; its log ends: {said}")
            if waiting:
                time.sleep(0.05)

    def _write_state(self, server: str, running: list[process.ComponentProcess], *, ready: bool = False) -> None:
        """After each start, so that `down` finds every process even if we are killed now."""
        state = ClusterState(paths.kubernetes_version(), server, tuple(running), ready)
        part = self.folder / "state.json.part"
        part.write_bytes(msgspec.json.encode(state))
        part.replace(self.folder / "state.json")

    def _check_room(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        free = shutil.disk_usage(self.folder).free
        if free < MIN_FREE_BYTES:
            raise InsufficientDisk(
                f"{self.folder} has {free >> 20} MiB free, etcd needs {MIN_FREE_BYTES >> 20}; free some space"
            )

    def _clear(self) -> bool:
        """Stop what runs and remove the folder, in the reverse of the order of starting."""
        state = self.state()
        for one in reversed(state.processes if state else ()):
            one.stop()
        there = self.folder.exists()
        shutil.rmtree(self.folder, ignore_errors=True)
        return there

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One `up` or `down` at a time for one folder."""
        path = self.folder.with_name(f".{self.folder.name}.lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = path.open("w")
        except OSError as error:
            raise InsufficientDisk(f"cannot write {path}: {error.strerror}") from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _signs_of_readiness(ports: dict[str, int]) -> list[ReadinessCheck]:
    """What must answer 200 before a cluster may be used."""
    signs = [(name, ports[name], "/healthz") for name in (CONTROLLER_MANAGER, SCHEDULER) if name in ports]
    if CONTROLLER_MANAGER in ports:
        # Pods are refused until it has made the default service account.
        signs.append((CONTROLLER_MANAGER, ports[APISERVER], "/api/v1/namespaces/default/serviceaccounts/default"))
    return signs


def _answers(sign: ReadinessCheck, tls: ssl.SSLContext | None) -> bool:
    _, port, path = sign
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=tls)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except ssl.SSLCertVerificationError as error:
        raise ComponentFailed(f"{sign[0]} shows a certificate that we do not trust: {error.verify_message}") from error
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
