"""A process that reads an untrusted clip locks itself in: after `confine`, it has its open files, memory and threads.

A caller, with one thread, first does what needs files, then confines itself, then reads the first byte of the clip:

    import av, av.filter               no module can be imported later
    import av.subtitles.stream         which PyAV would do for the first stream of any clip
    import av.subtitles.codeccontext
    clip = os.fdopen(fd, "rb")         no file can be opened or named later, and no pipe created
    limit_resources(memory)            standard output and error have to be pipes from here on
    confine()
    av.open(clip)                      the Python file: the fd protocol of ffmpeg needs fstat

Later, os.fstat fails (before glibc 2.39), a text codec that was not used yet is unknown, and tracebacks show no source.
A caller that needs arrays imports numpy first, with OPENBLAS_NUM_THREADS=1: its import starts threads.

Run as a script, it confines itself and prints what is in force: `python -I sandbox.py | cat`.
"""

import ctypes
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from vmafx.process import landlock, seccomp

PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38


class Confinement(NamedTuple):
    """What is in force for this process."""

    seccomp: bool
    landlock: int  # version of the ABI; 0: not in force
    limits: bool  # of memory and of files, by limit_resources

    def describe(self) -> str:
        """A line for people, such as "limits only: this system has no seccomp and no Landlock"."""
        landlock = f"Landlock (ABI {self.landlock})" if self.landlock else "Landlock"
        parts = {"seccomp": self.seccomp, landlock: self.landlock > 0, "limits": self.limits}
        found = [name for name, present in parts.items() if present]
        missing = [f"no {name}" for name, present in parts.items() if not present and name != "limits"]
        reasons = [f"this system has {' and '.join(missing)}"] if missing else []
        if not self.limits:
            reasons.append("no limits were set")
        summary = f"{found[0]} only" if len(found) == 1 else ", ".join(found) or "none"
        return f"{summary}: {', and '.join(reasons)}" if reasons else summary


def limit_resources(memory: int, *, files: int = 64) -> None:
    """Limit this process for good: `memory` bytes of address space, open files, no file that grows, no core dump.

    Address space is more than memory in use: each thread reserves 8 MiB for its stack and up to 128 MiB for malloc.
    """
    _lower(resource.RLIMIT_NOFILE, files)
    _lower(resource.RLIMIT_FSIZE, 0)  # pipes are not limited
    _lower(resource.RLIMIT_CORE, 0)
    with suppress(ValueError):  # macOS refuses it
        _lower(resource.RLIMIT_AS, memory)


def _lower(limit: int, value: int) -> None:
    _, hard = resource.getrlimit(limit)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(limit, (value, value))


def _is_limited(limit: int) -> bool:
    return resource.getrlimit(limit)[1] != resource.RLIM_INFINITY


def limit_cpu(pid: int, seconds: int) -> None:
    """End the child process `pid` with SIGXCPU once it has used so many seconds of CPU time; may be called again.

    Does nothing if the child has ended, or on a system without prlimit. A child that runs an attacker's code can block
    the signal: the parent then has to look at `cpu_seconds`.
    """
    if sys.platform != "linux":
        return
    with suppress(ProcessLookupError):
        _, hard = resource.prlimit(pid, resource.RLIMIT_CPU)
        soft = seconds if hard == resource.RLIM_INFINITY else min(seconds, hard)
        resource.prlimit(pid, resource.RLIMIT_CPU, (soft, hard))


def cpu_seconds(pid: int) -> float:
    """The CPU time that the process `pid` has used; 0 if it has ended, or on a system without /proc."""
    try:
        _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
    except OSError:
        return 0.0
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def set_process_option(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, *map(ctypes.c_long, (value, 0, 0, 0)))


def confine() -> Confinement:
    """Lock this process in, for good, with all that the system has; returns what is in force and never raises.

    Call it once, while the process has one thread: Landlock applies to the calling thread and those started later.
    """
    if sys.platform == "linux":
        # Other processes of the user cannot attach to it, and a crash starts no handler of core dumps.
        set_process_option(PR_SET_DUMPABLE, 0)
        set_process_option(PR_SET_NO_NEW_PRIVS, 1)  # otherwise only root may do what follows
        with suppress(OSError):  # glibc loads it when Python ends a daemon thread, and aborts if it cannot
            ctypes.CDLL("libgcc_s.so.1")
    limits = _is_limited(resource.RLIMIT_AS) and _is_limited(resource.RLIMIT_FSIZE)
    abi = landlock.restrict()  # before seccomp, which forbids its system calls
    return Confinement(seccomp=seccomp.install(), landlock=abi, limits=limits)


def main() -> None:
    limit_resources(1 << 30)
    print(confine().describe())  # noqa: T201 - the output of the script


if __name__ == "__main__":
    main()
