"""Linux namespaces that end with their holder: a script that imports only the standard library.

    isolate.py hold                      create pid, mount, network and host name namespaces, print "ready PID" with
                                         the first process, and hold them
    isolate.py hold-inside PID           the same without a pid namespace: inside the one that PID holds
    isolate.py enter PID COMMAND...      run a command in the namespaces that PID holds, with its exit status and
                                         without the *_proxy variables
    isolate.py relay PID HOST PORT       print "listening LOCAL", a port of this machine that leads to HOST:PORT there

The kernel ends every process of a pid namespace with its first process, and that one with its holder. Mounts,
interfaces and packet filters go with the last process in their namespace. So killing the holder leaves nothing of them.
"""

import ctypes
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from types import FrameType

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWPID, CLONE_NEWNET = 0x00020000, 0x04000000, 0x20000000, 0x40000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    action, *arguments = sys.argv[1:]
    if action == "hold":
        hold(None)
    elif action == "hold-inside":
        hold(int(arguments[0]))
    elif action == "enter":
        sys.exit(enter(int(arguments[0]), arguments[1:]))
    elif action == "relay":
        relay(int(arguments[0]), arguments[1], int(arguments[2]))
    else:
        sys.exit(f"error: {action!r} is not hold, hold-inside, enter or relay")


def hold(inside: int | None) -> None:
    """Hold new namespaces until this process is killed."""
    if inside is not None:
        _join(inside, ["pid_for_children"])
    kinds = CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET | (CLONE_NEWPID if inside is None else 0)
    _check(_libc.unshare(kinds), "unshare")
    _check(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "make mounts private")
    first = _fork() if inside is None else None
    if first == 0:
        _reap()
    print("ready", first or "", flush=True)  # noqa: T201 - read by the harness
    while True:
        signal.pause()


def enter(holder: int, command: list[str]) -> int:
    """Run the command as a child, pass SIGTERM and SIGINT on to it, and return its exit status."""
    folder = os.getcwd()  # noqa: PTH109 - a small process: there is one for each component
    _join(holder, ["pid_for_children", "net", "uts", "mnt"])
    os.chdir(folder)
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]  # no proxy of this machine can be reached there
    child = _fork()
    if child == 0:
        _exec(command)

    def pass_on(number: int, _frame: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def relay(holder: int, host: str, port: int) -> None:
    """Accept connections in the network of this process, and connect in that of the holder."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    _join(holder, ["net", "mnt"])  # a socket stays in the network in which it was created
    print("listening", listener.getsockname()[1], flush=True)  # noqa: T201 - read by the harness
    while True:
        client, _ = listener.accept()
        threading.Thread(target=_converse, args=(client, host, port), daemon=True).start()


def _converse(client: socket.socket, host: str, port: int) -> None:
    with client:
        try:
            server = socket.create_connection((host, port), timeout=10)
        except OSError as error:
            print(f"{host}:{port}: {error}", flush=True)  # noqa: T201
            return
        with server:
            server.settimeout(None)
            back = threading.Thread(target=_copy, args=(server, client), daemon=True)
            back.start()
            _copy(client, server)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until the end of one direction. A broken connection breaks both."""
    try:
        while block := source.recv(1 << 16):
            target.sendall(block)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


def _join(holder: int, kinds: list[str]) -> None:
    opened = [os.open(f"/proc/{holder}/ns/{kind}", os.O_RDONLY) for kind in kinds]  # before /proc becomes another
    for kind, descriptor in zip(kinds, opened, strict=True):
        _check(_libc.setns(descriptor, 0), f"enter the {kind} namespace of process {holder}")
        os.close(descriptor)


def _fork() -> int:
    """Like os.fork; the kernel kills the child when this process ends."""
    alive, held = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(held)
        _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
        os.set_blocking(alive, False)
        with suppress(BlockingIOError):
            if os.read(alive, 1) == b"":  # the parent ended before prctl; it may be in another pid namespace
                os._exit(1)
    os.close(alive)
    return child


def _reap() -> None:
    """The first process of a pid namespace inherits all orphans in it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        signal.sigwait({signal.SIGCHLD})


def _exec(command: list[str]) -> None:
    try:
        os.execvp(command[0], command)  # noqa: S606 - without a shell on purpose
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201
        os._exit(127)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        sys.exit(f"error: cannot {what}: {os.strerror(number)}")


if __name__ == "__main__":
    main()
