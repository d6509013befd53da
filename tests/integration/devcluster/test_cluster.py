"""The control plane itself: up, down, several at once, and nothing left behind however it ends."""

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.waiting import until
from vmafx.devcluster import ClusterOptions, DevCluster, DevClusterError, process
from vmafx.devcluster.cluster import ClusterState, free_port
from vmafx.devcluster.components import CONTROLLER_MANAGER, SCHEDULER
from vmafx.devcluster.errors import ComponentFailed, InsufficientDisk

QUICK = ClusterOptions(without=frozenset({CONTROLLER_MANAGER, SCHEDULER}), tethered=True)
VMAFX = [str(Path(sys.executable).with_name("vmafx"))]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where a test's cluster lives; whatever the test does, nothing of it stays."""
    yield tmp_path / "state" / "vmafx" / "dev" / "dev"
    DevCluster(tmp_path / "state" / "vmafx" / "dev" / "dev").down()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}


def listening(pid: int) -> list[str]:
    """The addresses on which a process listens, as the kernel has them."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # a connection that was closed since
            target = str(descriptor.readlink())
            if target.startswith("socket:["):
                sockets.add(target[8:-1])
    found = []
    for table, loopback in (("tcp", "0100007F"), ("tcp6", "0" * 31 + "1")):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                address = fields[1].partition(":")[0]
                found.append("loopback" if address == loopback else address)
    return found


def started(cluster: DevCluster) -> ClusterState:
    assert cluster.up() is True
    state = cluster.state()
    assert state is not None
    return state


def gone(state: ClusterState) -> bool:
    port = int(state.server.rpartition(":")[2])
    with socket.socket() as sock:
        closed = sock.connect_ex(("127.0.0.1", port)) != 0
    return closed and len(state.broken()) == len(state.processes)


def test_nothing_listens_beyond_loopback(cluster: DevCluster) -> None:
    state = cluster.state()
    assert state is not None
    addresses = {one.name: listening(one.pid) for one in state.processes}
    assert addresses.pop("etcd") == []
    assert addresses == {name: ["loopback"] for name in ("kube-apiserver", CONTROLLER_MANAGER, SCHEDULER)}


def test_nobody_else_may_read_the_keys(cluster: DevCluster) -> None:
    secrets = [path for path in cluster.folder.rglob("*") if path.suffix == ".key" or path.name.endswith("kubeconfig")]
    assert len(secrets) == 5
    assert {oct(path.stat().st_mode & 0o777) for path in secrets} == {"0o600"}
    assert oct(cluster.folder.stat().st_mode & 0o077) == "0o0"


def test_up_twice_is_up_once_and_down_leaves_nothing(folder: Path) -> None:
    with DevCluster(folder, QUICK) as cluster:
        state = cluster.state()
        assert state is not None
        assert [one.name for one in state.processes] == ["etcd", "kube-apiserver"]
        assert cluster.up() is False
        assert cluster.state() == state
    assert gone(state)
    assert not folder.exists()
    assert cluster.down() is False


def test_two_at_once(folder: Path, cluster: DevCluster) -> None:
    with DevCluster(folder, QUICK) as second:
        first_state, second_state = cluster.state(), second.state()
        assert first_state is not None
        assert second_state is not None
        assert first_state.server != second_state.server
        assert first_state.broken() == second_state.broken() == []


def test_a_stale_folder_is_recognised_and_cleaned(folder: Path) -> None:
    cluster = DevCluster(folder, QUICK)
    state = started(cluster)
    (folder / "left-over").touch()
    os.kill(state.processes[0].pid, signal.SIGKILL)  # etcd; the API server lives on without it
    until(lambda: state.broken() == ["etcd"], "etcd is gone")
    again = started(cluster)
    assert again.broken() == []
    assert again.processes[1].pid != state.processes[1].pid
    assert not state.processes[1].alive()
    assert not (folder / "left-over").exists()


def test_one_whose_start_was_cut_short_is_not_taken_for_ready(folder: Path) -> None:
    cluster = DevCluster(folder, QUICK)
    state = started(cluster)
    cluster._write_state(state.server, list(state.processes))  # as it stands until all has answered
    again = started(cluster)
    assert again.usable()
    assert again.processes[0].pid != state.processes[0].pid
    with pytest.raises(DevClusterError, match="runs without kube-controller-manager, kube-scheduler; take it down"):
        DevCluster(folder, ClusterOptions(tethered=True)).up()


def test_what_is_not_ours_is_not_touched(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "thesis.txt").write_text("all of it")
    with pytest.raises(DevClusterError, match="is not empty and no cluster of ours"):
        DevCluster(folder, QUICK).up()
    assert (folder / "thesis.txt").read_text() == "all of it"
    (folder / "thesis.txt").unlink()


def test_a_disk_that_fills_up_in_the_middle_leaves_no_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[process.ComponentProcess] = []

    def full(_cluster: DevCluster, _server: str, running: list[process.ComponentProcess], **_: object) -> None:
        begun.extend(running)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(DevCluster, "_write_state", full)
    with pytest.raises(InsufficientDisk, match="No space left on device"):
        DevCluster(folder, QUICK).up()
    assert [one.name for one in begun] == ["etcd"]
    assert not begun[0].alive()


def test_a_thread_cannot_hold_a_cluster(folder: Path) -> None:
    """The kernel's promise to end it with its parent is kept when the parent's thread ends."""
    failures: list[BaseException] = []

    def start() -> None:
        try:
            DevCluster(folder, QUICK).up()
        except DevClusterError as error:
            failures.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(failures[0])


def test_an_up_that_is_interrupted_harms_no_cluster_of_another(folder: Path, environment: dict[str, str]) -> None:
    first = DevCluster(folder, QUICK)
    command = [*VMAFX, "dev", "up", "--without", "controller-manager,scheduler"]
    with (
        first._locked(),  # as if it were building
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as second,
    ):
        assert second.stderr is not None
        assert "starting" in second.stderr.readline()
        second.terminate()
        assert second.wait(60) == 130
    state = started(first)
    assert state.usable()


def test_a_port_taken_in_between_is_not_the_users_problem(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = iter([taken.getsockname()[1], free_port()])
        cluster = DevCluster(folder, QUICK)
        cluster.up(pick_port=lambda: next(ports))
        assert next(ports, None) is None
        state = cluster.state()
        assert state is not None
        assert state.server != f"https://127.0.0.1:{taken.getsockname()[1]}"


def test_a_port_that_was_asked_for_and_is_taken(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        options = ClusterOptions(without=QUICK.without, tethered=True, port=port)
        with pytest.raises(
            ComponentFailed, match=f"^kube-apiserver: failed .*{port}: bind: address already in use; choose another"
        ):
            DevCluster(folder, options).up()
    assert not folder.exists()


def test_a_component_that_ends_at_once_says_why(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("etcd", "kube-apiserver"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'Error: I do not feel well' >&2\nexit 3\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(ComponentFailed, match="ended: Error: I do not feel well"):
        DevCluster(folder, QUICK).up()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("mount", "answer"), [("size=8m", "8 MiB free, etcd needs 256"), ("size=1g,nr_inodes=5", "No space left on device")]
)
def test_a_full_disk_is_named(folder: Path, environment: dict[str, str], mount: str, answer: str) -> None:
    folder.parent.mkdir(parents=True)
    script = f'mount -t tmpfs -o {mount} none "$0" && exec "$@"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(folder.parent), *VMAFX, "dev", "up"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert answer in last


ENDINGS = {
    "Ctrl-C": (signal.SIGINT, 130),
    "SIGTERM": (signal.SIGTERM, 130),
    "a killed parent": (signal.SIGKILL, -signal.SIGKILL),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_foreground_leaves_nothing_behind(folder: Path, environment: dict[str, str], ending: str) -> None:
    sign, code = ENDINGS[ending]
    command = [*VMAFX, "dev", "up", "--foreground", "--without", "controller-manager,scheduler"]
    # As a shell without job control starts what it puts into the background: with Ctrl-C ignored.
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "is ready after" in process.stdout.readline()
        state = DevCluster(folder).state()
        assert state is not None
        assert not gone(state)
        process.send_signal(sign)
        try:
            assert process.wait(60) == code  # each component is given ten seconds to end by itself
        finally:
            process.kill()
    until(lambda: gone(state), "all processes and the port are gone")
    assert folder.exists() == (sign == signal.SIGKILL)


def test_background_outlives_its_parent_until_down(folder: Path, environment: dict[str, str]) -> None:
    def vmafx(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([*VMAFX, *arguments], env=environment, capture_output=True, text=True, check=False)

    up = vmafx("dev", "up", "--without", "controller-manager,scheduler")
    assert up.returncode == 0, up.stderr
    status = vmafx("dev", "status")
    assert (status.returncode, status.stdout.count("running")) == (0, 2)
    again = vmafx("dev", "up", "--without", "controller-manager,scheduler")
    assert again.stdout.count("was already running") == 1
    assert "runs without kube-controller-manager" in vmafx("dev", "up").stderr
    assert f"export KUBECONFIG={folder / 'kubeconfig'}" in vmafx("dev", "env").stdout
    assert "etcd.log" in vmafx("dev", "logs").stdout
    state = DevCluster(folder).state()
    assert state is not None
    assert vmafx("dev", "down").stdout == "cluster 'dev' stopped\n"
    until(lambda: gone(state), "all processes and the port are gone")  # its last threads may outlive a process's first
    assert vmafx("dev", "status").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["dev", "up", "--name", "../evil"], "'../evil' is no name for a cluster"),
        (["dev", "up", "--without", "etcd"], "'etcd' cannot be left out"),
        (["dev", "status"], "cluster 'dev' does not exist; start it: vmafx dev up"),
        (["dev", "env", "--name", "x"], "start it: vmafx dev up --name x"),
        (["dev", "logs"], "does not exist"),
        (
            ["crd", "--check", "--dir", "/nowhere"],
            "generated files are out of date; run `vmafx crd`",
        ),
        (["crd", "--dir", "/proc/nowhere"], "cannot write /proc/nowhere"),
    ],
)
def test_mistakes_are_answered_in_a_line(environment: dict[str, str], arguments: list[str], answer: str) -> None:
    done = subprocess.run([*VMAFX, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert answer in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_state_file_that_cannot_be_read_is_named(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "state.json").write_text("{")
    with pytest.raises(DevClusterError, match=r"cannot read .*state\.json: .*; delete"):
        DevCluster(folder).up()
    (folder / "state.json").unlink()
