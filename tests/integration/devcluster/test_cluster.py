"""A development cluster: up, down, several at a time, and no processes or files left after any kind of end."""

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
    """The state folder of a test's cluster, which is taken down after the test."""
    yield tmp_path / "state" / "vmafx" / "dev" / "dev"
    DevCluster(tmp_path / "state" / "vmafx" / "dev" / "dev").down()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}


def listening(pid: int) -> list[str]:
    """The addresses on which a process listens, from /proc."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # a connection that was closed meanwhile
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


def has_ended(state: ClusterState) -> bool:
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


def test_only_the_owner_can_read_the_keys(cluster: DevCluster) -> None:
    secrets = [path for path in cluster.folder.rglob("*") if path.suffix == ".key" or path.name.endswith("kubeconfig")]
    assert len(secrets) == 5
    assert {oct(path.stat().st_mode & 0o777) for path in secrets} == {"0o600"}
    assert oct(cluster.folder.stat().st_mode & 0o077) == "0o0"


def test_a_second_up_changes_nothing_and_down_leaves_nothing(folder: Path) -> None:
    with DevCluster(folder, QUICK) as cluster:
        state = cluster.state()
        assert state is not None
        assert [one.name for one in state.processes] == ["etcd", "kube-apiserver"]
        assert cluster.up() is False
        assert cluster.state() == state
    assert has_ended(state)
    assert not folder.exists()
    assert cluster.down() is False


def test_two_clusters_run_side_by_side(folder: Path, cluster: DevCluster) -> None:
    with DevCluster(folder, QUICK) as second:
        first_state, second_state = cluster.state(), second.state()
        assert first_state is not None
        assert second_state is not None
        assert first_state.server != second_state.server
        assert first_state.broken() == second_state.broken() == []


def test_up_replaces_a_stale_cluster(folder: Path) -> None:
    cluster = DevCluster(folder, QUICK)
    state = started(cluster)
    (folder / "left-over").touch()
    os.kill(state.processes[0].pid, signal.SIGKILL)  # etcd; the API server keeps running
    until(lambda: state.broken() == ["etcd"], "etcd has ended")
    again = started(cluster)
    assert again.broken() == []
    assert again.processes[1].pid != state.processes[1].pid
    assert not state.processes[1].alive()
    assert not (folder / "left-over").exists()


def test_up_replaces_a_cluster_whose_start_was_interrupted(folder: Path) -> None:
    cluster = DevCluster(folder, QUICK)
    state = started(cluster)
    cluster._write_state(state.server, list(state.processes))  # as it is until all components are ready
    again = started(cluster)
    assert again.usable()
    assert again.processes[0].pid != state.processes[0].pid
    with pytest.raises(DevClusterError, match="runs without kube-controller-manager, kube-scheduler; take it down"):
        DevCluster(folder, ClusterOptions(tethered=True)).up()


def test_a_folder_with_other_files_is_not_touched(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "thesis.txt").write_text("chapter one")
    with pytest.raises(DevClusterError, match="is not empty and does not hold a cluster"):
        DevCluster(folder, QUICK).up()
    assert (folder / "thesis.txt").read_text() == "chapter one"
    (folder / "thesis.txt").unlink()


def test_a_disk_that_fills_up_during_the_start_leaves_no_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started_components: list[process.ComponentProcess] = []

    def disk_full(_cluster: DevCluster, _server: str, running: list[process.ComponentProcess], **_: object) -> None:
        started_components.extend(running)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(DevCluster, "_write_state", disk_full)
    with pytest.raises(InsufficientDisk, match="No space left on device"):
        DevCluster(folder, QUICK).up()
    assert [one.name for one in started_components] == ["etcd"]
    assert not started_components[0].alive()


def test_a_tethered_cluster_is_refused_outside_the_main_thread(folder: Path) -> None:
    """PR_SET_PDEATHSIG kills the children when the thread that started them ends."""
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


def test_an_interrupted_up_does_not_harm_a_concurrent_one(folder: Path, environment: dict[str, str]) -> None:
    first = DevCluster(folder, QUICK)
    command = [*VMAFX, "dev", "up", "--without", "controller-manager,scheduler"]
    with (
        first._locked(),  # as during a build
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as second,
    ):
        assert second.stderr is not None
        assert "starting" in second.stderr.readline()
        second.terminate()
        assert second.wait(60) == 130
    state = started(first)
    assert state.usable()


def test_a_port_that_is_taken_meanwhile_is_replaced(folder: Path) -> None:
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


def test_a_requested_port_that_is_taken_is_an_error(folder: Path) -> None:
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


def test_the_error_of_a_component_that_ends_at_once_is_shown(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("etcd", "kube-apiserver"):
        (tmp_path / name).write_text("#!/bin/sh\necho 'Error: bad configuration' >&2\nexit 3\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(ComponentFailed, match="ended: Error: bad configuration"):
        DevCluster(folder, QUICK).up()
    assert not folder.exists()


@pytest.mark.parametrize(
    ("mount", "error"), [("size=8m", "8 MiB free, etcd needs 256"), ("size=1g,nr_inodes=5", "No space left on device")]
)
def test_a_full_disk_is_reported(folder: Path, environment: dict[str, str], mount: str, error: str) -> None:
    folder.parent.mkdir(parents=True)
    script = f'mount -t tmpfs -o {mount} none "$0" && exec "$@"'
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(folder.parent), *VMAFX, "dev", "up"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert error in last


ENDINGS = {
    "Ctrl-C": (signal.SIGINT, 130),
    "SIGTERM": (signal.SIGTERM, 130),
    "a killed parent": (signal.SIGKILL, -signal.SIGKILL),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_foreground_cluster_leaves_nothing_behind(folder: Path, environment: dict[str, str], ending: str) -> None:
    number, code = ENDINGS[ending]
    command = [*VMAFX, "dev", "up", "--foreground", "--without", "controller-manager,scheduler"]
    # A shell without job control starts background commands with SIGINT ignored.
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "is ready after" in process.stdout.readline()
        state = DevCluster(folder).state()
        assert state is not None
        assert not has_ended(state)
        process.send_signal(number)
        try:
            assert process.wait(60) == code  # each component has ten seconds to end
        finally:
            process.kill()
    until(lambda: has_ended(state), "all processes have ended and the port is closed")
    assert folder.exists() == (number == signal.SIGKILL)


def test_a_background_cluster_outlives_its_parent_until_down(folder: Path, environment: dict[str, str]) -> None:
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
    until(
        lambda: has_ended(state), "all processes have ended and the port is closed"
    )  # the last threads of a process may outlive its main thread
    assert vmafx("dev", "status").returncode == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["dev", "up", "--name", "../evil"], "'../evil' is not a valid cluster name"),
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
def test_a_mistake_is_reported_in_one_line(environment: dict[str, str], arguments: list[str], error: str) -> None:
    done = subprocess.run([*VMAFX, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert error in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_damaged_state_file_is_named(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "state.json").write_text("{")
    with pytest.raises(DevClusterError, match=r"cannot read .*state\.json: .*; delete"):
        DevCluster(folder).up()
    (folder / "state.json").unlink()
