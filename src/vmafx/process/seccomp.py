"""The system calls of a process that decodes untrusted clips: a list of what is allowed, as a seccomp filter.

Everything else fails with EPERM, so that libraries report an error instead of crashing: no call opens, creates or names
a file, starts a process or a program, makes memory executable, uses a socket, or reaches another process.
"""

import ctypes
import errno
import fcntl
import os
import signal
import struct
import sys
from typing import NamedTuple

# BPF, of linux/filter.h: instructions on the accumulator
LOAD, AND, JUMP_EQUAL, RETURN = 0x20, 0x54, 0x15, 0x06
# Offsets in struct seccomp_data; both architectures are little-endian.
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16

KILL_PROCESS, ERRNO, ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
SET_MODE_FILTER, TSYNC = 1, 1

LOW = 0xFFFFFFFF  # the bits of an int argument: the kernel ignores the others
WHOLE = 0xFFFFFFFFFFFFFFFF
# CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, SETTLS, PARENT_SETTID, CHILD_CLEARTID: what glibc starts a thread with.
THREAD_FLAGS, CLONE_DETACHED = 0x3D0F00, 0x400000  # the second is musl's, and has no effect
PROT_EXEC = 4
FUTEXES = (0, 1, 3, 4, 5, 9, 10)  # WAIT, WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, WAIT_BITSET, WAKE_BITSET
FUTEX_OPTIONS = 0x180  # FUTEX_PRIVATE_FLAG, FUTEX_CLOCK_REALTIME
F_DUPFD_CLOEXEC, F_SETPIPE_SZ, F_GETPIPE_SZ = 1030, 1031, 1032
FCNTL_COMMANDS = (fcntl.F_GETFD, fcntl.F_GETFL, F_DUPFD_CLOEXEC, F_GETPIPE_SZ)
MAX_PIPE = 0x1FFFFF  # bytes; root could have 2 GiB, which no limit of the process covers
MADV_ORDINARY, MADV_GUARD_INSTALL = 63, 102  # the values between poison pages of the machine (MADV_HWPOISON)


class Architecture(NamedTuple):
    audit: int  # AUDIT_ARCH_* of linux/audit.h
    seccomp: int  # the number of seccomp(2)


ARCHITECTURES = {
    "x86_64": Architecture(0xC000003E, 317),
    "aarch64": Architecture(0xC00000B7, 277),
}
MACHINE = os.uname().machine


class Check(NamedTuple):
    """Holds if the masked bits of an argument have a value."""

    argument: int
    mask: int
    value: int


class Syscall(NamedTuple):
    """A system call and its numbers. It is allowed if all checks of one alternative hold; if none does, it fails."""

    name: str
    x86_64: int | None
    aarch64: int | None
    alternatives: tuple[tuple[Check, ...], ...] = ((),)
    otherwise: int = errno.EPERM


def syscalls(pid: int) -> tuple[Syscall, ...]:
    """What the process `pid` may call."""
    not_executable = ((Check(2, PROT_EXEC, 0),),)
    return (
        # Open files: the clip and the pipes. The descriptors say what is possible; nothing here opens another one.
        # newfstatat is missing, since it takes names: before glibc 2.39, fstat fails as well.
        Syscall("read", 0, 63),
        Syscall("write", 1, 64),
        Syscall("lseek", 8, 62),
        Syscall("readv", 19, 65),
        Syscall("writev", 20, 66),
        Syscall("pread64", 17, 67),
        Syscall("close", 3, 57),
        Syscall("fstat", 5, 80),
        Syscall("poll", 7, None),
        Syscall("ppoll", 271, 73),
        # Not F_SETFL, F_SETOWN and locks: other processes share the open file.
        Syscall("fcntl", 72, 25, (
            *((Check(1, LOW, command),) for command in FCNTL_COMMANDS),
            (Check(1, LOW, F_SETPIPE_SZ), Check(2, LOW & ~MAX_PIPE, 0)),
        )),
        # isatty() has to answer no; a terminal could be given input (TIOCSTI).
        Syscall("ioctl", 16, 29, (), errno.ENOTTY),
        # Memory, never executable.
        Syscall("mmap", 9, 222, not_executable),
        Syscall("mprotect", 10, 226, not_executable),
        Syscall("munmap", 11, 215),
        Syscall("mremap", 25, 216),
        Syscall("brk", 12, 214),
        Syscall("madvise", 28, 233, ((Check(2, LOW & ~MADV_ORDINARY, 0),), (Check(2, LOW & ~1, MADV_GUARD_INSTALL),))),
        # Threads, but no processes. glibc uses clone if clone3 is missing; the flags of clone3 cannot be checked.
        # Priority inheritance is missing: nothing uses it, and it was the source of exploits.
        Syscall("futex", 202, 98, tuple((Check(1, LOW & ~FUTEX_OPTIONS, operation),) for operation in FUTEXES)),
        Syscall("clone", 56, 220, ((Check(0, LOW & ~CLONE_DETACHED, THREAD_FLAGS),),)),
        Syscall("clone3", 435, 435, (), errno.ENOSYS),
        Syscall("set_robust_list", 273, 99),
        Syscall("rseq", 334, 293),
        Syscall("sched_yield", 24, 124),
        Syscall("sched_getaffinity", 204, 123),  # the number of cores
        Syscall("gettid", 186, 178),
        Syscall("getpid", 39, 172),
        Syscall("exit", 60, 93),
        Syscall("exit_group", 231, 94),
        # abort() has to end it. Another signal would look as if something else had ended it.
        Syscall("tgkill", 234, 131, ((Check(0, LOW, pid), Check(2, LOW, signal.SIGABRT)),)),
        Syscall("rt_sigaction", 13, 134),
        Syscall("rt_sigprocmask", 14, 135),
        Syscall("rt_sigreturn", 15, 139),
        Syscall("sigaltstack", 131, 132),
        Syscall("restart_syscall", 219, 128),
        # Time, and what the machine and this process have.
        Syscall("clock_gettime", 228, 113),
        Syscall("clock_getres", 229, 114),
        Syscall("clock_nanosleep", 230, 115),
        Syscall("nanosleep", 35, 101),
        Syscall("gettimeofday", 96, 169),
        Syscall("time", 201, None),
        Syscall("getrandom", 318, 278),
        Syscall("getrusage", 98, 165),
        Syscall("sysinfo", 99, 179),
        Syscall("prlimit64", 302, 261, ((Check(0, LOW, 0), Check(2, WHOLE, 0)),)),  # read its own limits, set none
    )  # fmt: skip


class Instruction(NamedTuple):
    code: int
    if_true: int
    if_false: int
    value: int


def program(machine: str, pid: int) -> list[Instruction]:
    """The filter. Numbers of x32 on x86_64 have a bit that no number of the list has, so that they fail too."""
    instructions = [
        Instruction(LOAD, 0, 0, ARCHITECTURE),
        Instruction(JUMP_EQUAL, 1, 0, ARCHITECTURES[machine].audit),
        Instruction(RETURN, 0, 0, KILL_PROCESS),
        Instruction(LOAD, 0, 0, NUMBER),
    ]
    for syscall in syscalls(pid):
        number = getattr(syscall, machine)
        if number is not None:
            answer = _answer(syscall)
            instructions += [Instruction(JUMP_EQUAL, 0, len(answer), number), *answer]
    return [*instructions, Instruction(RETURN, 0, 0, ERRNO | errno.EPERM)]


def _answer(syscall: Syscall) -> list[Instruction]:
    instructions: list[Instruction] = []
    for alternative in syscall.alternatives:
        steps = [step for check in alternative for step in _steps(check)]
        for position, step in enumerate(steps):
            to_next = len(steps) - position  # past the rest and the RETURN
            instructions.append(step._replace(if_false=to_next) if step.code == JUMP_EQUAL else step)
        instructions.append(Instruction(RETURN, 0, 0, ALLOW))
    if () not in syscall.alternatives:
        instructions.append(Instruction(RETURN, 0, 0, ERRNO | syscall.otherwise))
    return instructions


def _steps(check: Check) -> list[Instruction]:
    """Compare both halves of a 64-bit argument, since the accumulator has 32 bits."""
    steps = []
    for offset, shift in ((0, 0), (4, 32)):
        mask, value = check.mask >> shift & LOW, check.value >> shift & LOW
        if mask:
            steps += [
                Instruction(LOAD, 0, 0, ARGUMENTS + 8 * check.argument + offset),
                Instruction(AND, 0, 0, mask),
                Instruction(JUMP_EQUAL, 0, 0, value),
            ]
    return steps


def install() -> bool:
    """Apply the filter to all threads of this process, for good. Needs PR_SET_NO_NEW_PRIVS, or root.

    False if the machine has no seccomp or another CPU.
    """
    is_32_bit = struct.calcsize("P") != 8  # its numbers differ
    if sys.platform != "linux" or MACHINE not in ARCHITECTURES or is_32_bit:
        return False
    instructions = program(MACHINE, os.getpid())
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in instructions))
    fprog = ctypes.create_string_buffer(struct.pack("HP", len(instructions), ctypes.addressof(code)))
    libc = ctypes.CDLL(None)
    libc.syscall.restype = ctypes.c_long
    arguments = map(ctypes.c_long, (ARCHITECTURES[MACHINE].seccomp, SET_MODE_FILTER, TSYNC))
    return bool(libc.syscall(*arguments, ctypes.byref(fprog)) == 0)
