"""A process that has confined itself, on the real kernel: what it cannot do, and what it still can."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmafx.process.sandbox import limit_cpu

Child = subprocess.Popen[bytes]

# An act runs in a folder with a file "secret", and knows the process `victim`. Its standard input is an open file.
IMPORTS = """
import ctypes, errno, fcntl, json, mmap, os, resource, signal, socket, subprocess, sys, threading, time
from vmafx.process import landlock, sandbox, seccomp
from vmafx.process.tether import tethered

libc = ctypes.CDLL(None, use_errno=True)
IS_X86 = os.uname().machine == "x86_64"

def syscall(x86_64, aarch64, *arguments):
    if libc.syscall(*map(ctypes.c_long, (x86_64 if IS_X86 else aarch64, *arguments))) < 0:
        raise OSError(ctypes.get_errno(), "failed")
"""
CONFINE = {
    "nothing": "version = 0",
    "everything": "version = sandbox.confine().landlock",
    "seccomp": "version = 0; sandbox.set_process_option(38, 1); assert seccomp.install()",
    "landlock": "sandbox.set_process_option(38, 1); version = landlock.restrict(); assert version",
}
ATTEMPT = """
try:
    {act}
    outcome = "done"
except OSError as error:
    outcome = errno.errorcode[error.errno]
os.write(1, json.dumps([outcome, version]).encode())
os._exit(0)
"""

OPENING = {
    "read a file": "open('secret').read()",
    "reopen a descriptor": "open('/proc/self/fd/0').read()",
    "write to a file": "open('secret', 'w').write('changed')",
    "append to a file": "open('secret', 'a').write('changed')",
    "create a file": "open('created', 'w')",
    "create an unnamed file": "os.open('.', os.O_TMPFILE | os.O_RDWR)",
    "list a folder": "os.listdir('.')",
    "create a folder": "os.mkdir('created')",
    "delete a file": "os.unlink('secret')",
    "rename a file": "os.rename('secret', 'renamed')",
    "create a symlink": "os.symlink('secret', 'created')",
    "create a named pipe": "os.mkfifo('created')",
    "open its own memory": "open('/proc/self/mem', 'r+b')",
    "read the environment of another process": "open(f'/proc/{victim}/environ', 'rb').read()",
    "execute a program": "os.execv('/bin/true', ['true'])",
}
NAMING = {
    "stat a file": "os.stat('secret')",
    "change permissions": "os.chmod('secret', 0o777)",
    "change times": "os.utime('secret', (1, 1))",
    "change the folder": "os.chdir('/')",
}
PROCESSES = {
    "fork": "os.fork() or os._exit(0)",
    "run a program": "subprocess.run(['/bin/true'])",
    "spawn a program": "os.posix_spawn('/bin/true', ['true'], {})",
    "kill another process": "os.kill(victim, signal.SIGKILL)",
    "find another process": "os.kill(victim, 0)",
    "open another process": "os.pidfd_open(victim)",
    "limit another process": "resource.prlimit(victim, resource.RLIMIT_NOFILE, (10, 10))",
    "change its own limits": "resource.prlimit(0, resource.RLIMIT_NOFILE, (10, 10))",
    "change its own priority": "os.nice(1)",
}
MEMORY = {
    "map executable memory": "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)",
    "make memory executable": (
        "page = mmap.mmap(-1, 4096); syscall(10, 226, ctypes.addressof(ctypes.c_char.from_buffer(page)), 4096, 5)"
    ),
    "create a file in memory": "os.memfd_create('created')",
}
SOCKETS = {
    "open a TCP port": "socket.socket().bind(('127.0.0.1', 0))",
    "open a UNIX socket": "socket.socket(socket.AF_UNIX)",
    "open a pair of sockets": "socket.socketpair()",
}
DESCRIPTORS = {
    "change the mode of a pipe": "fcntl.fcntl(1, fcntl.F_SETFL, os.O_NONBLOCK)",
    "have signals sent": "fcntl.fcntl(1, fcntl.F_SETOWN, os.getpid())",
    "lock an open file": "fcntl.flock(0, fcntl.LOCK_SH)",
    "create a pipe": "os.pipe()",
}
ACTS = OPENING | NAMING | PROCESSES | MEMORY | SOCKETS | DESCRIPTORS
# What Landlock refuses without seccomp, and the first version of its ABI that does.
LANDLOCK_SINCE = dict.fromkeys(OPENING, 1) | {
    "open a TCP port": 4,
    "kill another process": 6,
    "find another process": 6,
}
# Numbers on x86_64 and aarch64. Not everyone may call them outside a sandbox.
FORBIDDEN_CALLS = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "chroot": (161, 51),
    "prctl": (157, 167),
    "personality": (135, 92),
    "seccomp": (317, 277),
    "splice": (275, 76),
    "openat2": (437, 437),
    "pidfd_getfd": (438, 438),
}


def run(code: str, *arguments: object, stdin: int = subprocess.DEVNULL) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-I", "-c", IMPORTS + textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, stdin=stdin, capture_output=True, text=True, timeout=120, check=False)


def output(code: str, *arguments: object) -> str:
    done = run(code, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "secret").write_text("secret")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def victim() -> Iterator[Child]:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def attempt(act: str, parts: str, victim: Child) -> tuple[str, int]:
    """The outcome of an act ("done" or the name of its error), and the version of Landlock in force."""
    code = f"victim = {victim.pid}\n{CONFINE[parts]}\n{ATTEMPT.format(act=act)}"
    with Path("secret").open() as file:
        done = run(code, stdin=file.fileno())
    assert (done.returncode, done.stderr) == (0, "")
    outcome, version = json.loads(done.stdout or '["done", 0]')  # execv leaves no output
    return outcome, version


def is_untouched(folder: Path, victim: Child) -> bool:
    files = {path.name: path.read_text() for path in folder.iterdir()}
    return files == {"secret": "secret"} and victim.poll() is None


@pytest.mark.parametrize("name", ACTS)
def test_a_confined_process_cannot(name: str, folder: Path, victim: Child) -> None:
    assert attempt(ACTS[name], "everything", victim)[0] == "EPERM"
    assert is_untouched(folder, victim)


@pytest.mark.parametrize("name", ACTS)
def test_seccomp_alone_holds_back(name: str, folder: Path, victim: Child) -> None:
    assert attempt(ACTS[name], "seccomp", victim)[0] == "EPERM"
    assert is_untouched(folder, victim)


@pytest.mark.parametrize("name", LANDLOCK_SINCE)
def test_landlock_alone_holds_back(name: str, folder: Path, victim: Child) -> None:
    outcome, version = attempt(ACTS[name], "landlock", victim)
    if version >= LANDLOCK_SINCE[name]:
        assert outcome in {"EACCES", "EPERM"}
        assert is_untouched(folder, victim)
    else:
        assert outcome == "done"


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ACTS)
def test_without_confinement_the_same_acts_succeed(name: str, victim: Child) -> None:
    assert attempt(ACTS[name], "nothing", victim)[0] == "done"


def test_dangerous_system_calls_are_refused() -> None:
    outcomes = output(
        """
        assert sandbox.confine().seccomp
        outcomes = {}
        for name, numbers in json.loads(sys.argv[1]).items():
            try:
                syscall(*numbers, 0, 0, 0, 0, 0, 0)
                outcomes[name] = "done"
            except OSError as error:
                outcomes[name] = errno.errorcode[error.errno]
        print(json.dumps(outcomes))
        """,
        json.dumps(FORBIDDEN_CALLS),
    )
    assert json.loads(outcomes) == dict.fromkeys(FORBIDDEN_CALLS, "EPERM")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="needs a CPU that runs calls of two architectures")
def test_a_call_of_32_bit_x86_ends_the_process() -> None:
    """Its numbers differ: an allowed one would stand for another call."""
    code = """
        int_0x80 = bytes.fromhex("b814000000 cd80 c3")  # mov eax, 20 (getpid); int 0x80; ret
        page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(int_0x80)
        call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        {confine}
        print(call() == os.getpid())
        """
    assert output(code.format(confine="")) == "True\n"
    assert run(code.format(confine="sandbox.confine()")).returncode == -signal.SIGSYS


def test_the_filter_applies_to_threads_that_run_already() -> None:
    assert output(
        """
        confined, outcome = threading.Event(), []
        def read_a_file():
            confined.wait()
            try:
                open("/proc/self/status")
            except PermissionError as error:
                outcome.append(error.errno)
        thread = threading.Thread(target=read_a_file)
        thread.start()
        sandbox.confine()
        confined.set()
        thread.join()
        print(outcome)
        """
    ) == f"[{errno.EPERM}]\n"  # fmt: skip


def test_a_process_without_privileges_confines_itself_and_hides_from_its_user() -> None:
    """The files of a process in /proc belong to root once others of its user may no longer attach to it."""
    code = """
        if os.getuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE, which setuid takes away
        print(os.getuid(), flush=True)
        input()
        parts = sandbox.confine()
        print(parts.seccomp, parts.landlock > 0, flush=True)
        input()
        """
    command = [sys.executable, "-I", "-c", IMPORTS + textwrap.dedent(code)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin
        assert process.stdout
        status = Path(f"/proc/{process.pid}/status")
        assert int(process.stdout.readline()) == status.stat().st_uid != 0
        process.stdin.write("\n")
        assert process.stdout.readline() == "True True\n"
        assert status.stat().st_uid == 0
        process.stdin.write("\n")


def test_it_needs_no_privileges() -> None:
    confine = "confinement = sandbox.confine()\nprint(confinement.seccomp, confinement.landlock > 0)"
    assert output(f"os.getuid() or os.setuid(65534)\n{confine}") == "True True\n"


def test_confine_raises_nothing_where_the_kernel_refuses_every_part() -> None:
    """As on a kernel without them: here the filter of the first call refuses all system calls of the second."""
    assert output("sandbox.confine(); print(tuple(sandbox.confine()))") == "(False, 0, False)\n"


def test_a_confined_process_computes_in_threads() -> None:
    assert output(
        """
        sandbox.limit_resources(4 << 30)
        sandbox.confine()
        totals = []
        def add():
            block = bytearray(32 << 20)
            time.sleep(0.001)
            totals.append(len(block) + sum(os.urandom(8)) * 0)
        threads = [threading.Thread(target=add) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(sum(totals) >> 20, len(os.sched_getaffinity(0)) > 0, sys.stdout.isatty())
        """
    ) == "256 True False\n"  # fmt: skip


def test_a_confined_process_uses_the_files_that_it_has_open(folder: Path) -> None:
    """It reads, seeks and maps the clip, and fills pipes."""
    code = """
        clip = os.fdopen(0, "rb")
        out, into = os.pipe()
        sandbox.limit_resources(4 << 30)
        sandbox.confine()
        content = clip.read(), clip.seek(2), clip.read(), os.pread(0, 3, 0).decode()
        mapped = mmap.mmap(0, 6, prot=mmap.PROT_READ)[:].decode()
        size = fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, 1 << 20)
        os.writev(into, [b"a", b"b"])
        print(content, mapped, size, os.read(out, 8192) == b"ab")
        """
    with (folder / "secret").open() as file:
        done = run(code, stdin=file.fileno())
    assert done.stdout == f"{(b'secret', 2, b'cret', 'sec')} secret 1048576 True\n", done.stderr


def test_a_confined_process_aborts_with_its_signal() -> None:
    assert run("sandbox.confine(); os.abort()").returncode == -signal.SIGABRT


def test_a_confined_process_ends_while_daemon_threads_run() -> None:
    output(
        """
        def spin():
            while True:
                time.sleep(0)
        sandbox.confine()
        for _ in range(4):
            threading.Thread(target=spin, daemon=True).start()
        time.sleep(0.01)
        """
    )


def test_a_confined_process_ends_with_its_parent() -> None:
    confined = "from vmafx.process import sandbox; sandbox.confine(); print('confined', flush=True); input()"
    parent = """
        reading, writing = os.pipe()
        subprocess.Popen(tethered([sys.executable, "-I", "-c", sys.argv[1]]), stdin=reading)
        time.sleep(600)
        """
    command = [sys.executable, "-I", "-c", IMPORTS + textwrap.dedent(parent), confined]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"confined\n"
        process.kill()
        assert process.stdout.read() == b""  # ends once no process has the pipe open


def test_memory_above_the_limit_is_refused() -> None:
    assert output(
        """
        sandbox.limit_resources(1 << 30)
        print(sandbox.confine().limits)
        try:
            bytearray(1 << 30)
        except MemoryError:
            print("MemoryError", len(bytearray(64 << 20)) >> 20)
        """
    ) == "True\nMemoryError 64\n"  # fmt: skip


def test_limits_hold_for_files_and_cannot_be_raised(folder: Path) -> None:
    """Each of them without seccomp and Landlock."""
    code = """
        file = open("secret", "a")
        sandbox.limit_resources(4 << 30, files=20)
        outcomes = []
        for act in (lambda: os.write(file.fileno(), b"more"), lambda: [os.pipe() for _ in range(20)]):
            try:
                act()
            except OSError as error:
                outcomes.append(errno.errorcode[error.errno])
        limits = resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_CORE
        os.write(1, json.dumps([outcomes, *map(resource.getrlimit, limits)]).encode())
        """
    assert json.loads(output(code)) == [["EFBIG", "EMFILE"], [4 << 30] * 2, [20, 20], [0, 0], [0, 0]]
    assert (folder / "secret").read_text() == "secret"


def test_limits_do_not_exceed_those_that_the_process_has() -> None:
    code = """
        resource.setrlimit(resource.RLIMIT_NOFILE, (20, 30))
        sandbox.limit_resources(4 << 30, files=40)
        print(resource.getrlimit(resource.RLIMIT_NOFILE))
        """
    assert output(code) == "(30, 30)\n"


def test_the_parent_limits_the_cpu_time_of_a_confined_process() -> None:
    code = "sandbox.confine(); os.write(1, b'confined'); exec('while True: pass')"
    with subprocess.Popen([sys.executable, "-I", "-c", IMPORTS + code], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.read(8) == b"confined"
        limit_cpu(process.pid, 1000)
        assert resource.prlimit(process.pid, resource.RLIMIT_CPU)[0] == 1000
        limit_cpu(process.pid, 1)  # it may be lowered and raised
        assert process.wait(timeout=120) == -signal.SIGXCPU
        limit_cpu(process.pid, 1)  # the child is gone
