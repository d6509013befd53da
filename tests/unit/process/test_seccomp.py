"""The seccomp filter, run by an interpreter of BPF: which system calls it allows, on each architecture."""

import errno
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.process.seccomp import ALLOW, ARCHITECTURES, ERRNO, KILL_PROCESS, program, syscalls

PID = 4242
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
PROGRAMS = {machine: program(machine, PID) for machine in ARCHITECTURES}
PRESENT = [machine for machine, header in HEADERS.items() if header.exists()]
NUMBER = re.compile(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", re.MULTILINE)
ANYTHING = st.integers(0, 2**64 - 1)
EPERM = ERRNO | errno.EPERM

THREAD = 0x3D0F00  # the flags of glibc's pthread_create, as strace shows them
X32 = 0x40000000

ALWAYS = {
    *("read", "write", "lseek", "readv", "writev", "pread64", "close", "fstat", "poll", "ppoll"),
    *("munmap", "mremap", "brk"),
    *("set_robust_list", "rseq", "sched_yield", "sched_getaffinity", "gettid", "getpid", "exit", "exit_group"),
    *("rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall"),
    *("clock_gettime", "clock_getres", "clock_nanosleep", "nanosleep", "gettimeofday", "time"),
    *("getrandom", "getrusage", "sysinfo"),
}
ONLY_X86 = {"poll", "time"}
# What has to be true of the arguments
SOMETIMES: dict[str, Callable[[Sequence[int]], bool]] = {
    "mmap": lambda args: not args[2] & 4,
    "mprotect": lambda args: not args[2] & 4,
    "madvise": lambda args: args[2] % 2**32 < 64 or args[2] % 2**32 in {102, 103},
    "futex": lambda args: args[1] % 2**32 & ~0x180 in {0, 1, 3, 4, 5, 9, 10},
    "clone": lambda args: args[0] % 2**32 in {THREAD, THREAD | 0x400000},
    "tgkill": lambda args: args[0] % 2**32 == PID and args[2] % 2**32 == 6,
    "fcntl": lambda args: (
        args[1] % 2**32 in {1, 3, 1030, 1032} or (args[1] % 2**32 == 1031 and args[2] % 2**32 < 2 << 20)
    ),
    "prlimit64": lambda args: args[0] % 2**32 == 0 and args[2] == 0,
}
NEVER = {"ioctl": errno.ENOTTY, "clone3": errno.ENOSYS}
# Values at and around those that the filter compares with, in either half of an argument
EDGES = (
    0,
    1,
    3,
    4,
    7,
    63,
    64,
    100,
    102,
    103,
    0x80,
    0x189,
    0x18B,
    1030,
    1031,
    1032,
    PID,
    2 << 20,
    THREAD,
    THREAD | 0x400000,
)
ARGUMENT = (
    ANYTHING
    | st.sampled_from(EDGES)
    | st.builds(lambda value, bit: value ^ (1 << bit), st.sampled_from(EDGES), st.integers(0, 63))
)


def run(machine: str, number: int, args: Sequence[int] = (0,) * 6, audit: int | None = None) -> int:
    """What the filter returns for a call, with seccomp_data as words of 32 bits."""
    halves = [half for arg in args for half in (arg % 2**32, arg >> 32)]
    words = [number % 2**32, ARCHITECTURES[machine].audit if audit is None else audit, 0, 0, *halves]
    code, position, accumulator = PROGRAMS[machine], 0, 0
    while True:
        step = code[position]
        position += 1
        match step.code:
            case 0x20:  # BPF_LD | BPF_W | BPF_ABS
                accumulator = words[step.value // 4]
            case 0x54:  # BPF_ALU | BPF_AND | BPF_K
                accumulator &= step.value
            case 0x15:  # BPF_JMP | BPF_JEQ | BPF_K
                position += step.if_true if accumulator == step.value else step.if_false
            case 0x06:  # BPF_RET | BPF_K
                return step.value
            case other:
                raise AssertionError(f"unknown instruction {other:#x}")


def numbers(machine: str) -> dict[int, str]:
    return {getattr(call, machine): call.name for call in syscalls(PID) if getattr(call, machine) is not None}


@pytest.mark.parametrize("machine", PRESENT)
def test_the_numbers_are_those_of_the_kernel_headers(machine: str) -> None:
    header = {int(number): name for name, number in NUMBER.findall(HEADERS[machine].read_text())}
    assert {number: header[number] for number in numbers(machine)} == numbers(machine)


def test_the_list_has_these_system_calls_and_no_others() -> None:
    named = ALWAYS | SOMETIMES.keys() | NEVER.keys()
    assert set(numbers("x86_64").values()) == named
    assert set(numbers("aarch64").values()) == named - ONLY_X86
    assert len(syscalls(PID)) == len(named)


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_every_number_gets_its_action(machine: str) -> None:
    listed = numbers(machine)
    for number in range(601):
        name = listed.get(number)
        for args in ((0,) * 6, (2**64 - 1,) * 6):
            if name in ALWAYS:
                expected = ALLOW
            elif name in NEVER:
                expected = ERRNO | NEVER[name]
            else:
                expected = ALLOW if name in SOMETIMES and SOMETIMES[name](args) else EPERM
            assert run(machine, number, args) == expected, (number, name, args)


@pytest.mark.parametrize("machine", ARCHITECTURES)
@given(args=st.tuples(*[ARGUMENT] * 6))
def test_arguments_decide(machine: str, args: tuple[int, ...]) -> None:
    for number, name in numbers(machine).items():
        if name in SOMETIMES:
            assert run(machine, number, args) == (ALLOW if SOMETIMES[name](args) else EPERM), name


@pytest.mark.parametrize("machine", ARCHITECTURES)
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("mmap", (0, 8 << 20, 0, 0x20022, 2**64 - 1, 0)),  # the stack of a thread
        ("mmap", (0, 4096, 3, 0x22, 2**64 - 1, 0)),
        ("futex", (0x7F0000000000, 0x80, 2, 0, 0, 0)),  # FUTEX_WAIT_PRIVATE
        ("futex", (0x7F0000000000, 0x189, 0, 0, 0, 2**32 - 1)),  # FUTEX_WAIT_BITSET_PRIVATE|FUTEX_CLOCK_REALTIME
        ("clone", (THREAD, 0x7F0000000000, 0, 0, 0, 0)),
        ("tgkill", (PID, PID + 1, 6, 0, 0, 0)),
        ("fcntl", (5, 1031, 1 << 20, 0, 0, 0)),
        ("madvise", (0x7F0000000000, 4096, 4, 0, 0, 0)),
        ("prlimit64", (0, 7, 0, 0x7F0000000000, 0, 0)),
    ],
)
def test_what_libraries_call_is_allowed(machine: str, name: str, args: tuple[int, ...]) -> None:
    number = next(number for number, listed in numbers(machine).items() if listed == name)
    assert run(machine, number, args) == ALLOW


@given(number=st.integers(0, 2**32 - 1), args=st.tuples(*[ANYTHING] * 6))
def test_a_number_that_is_not_listed_fails(number: int, args: tuple[int, ...]) -> None:
    for machine in ARCHITECTURES:
        if number not in numbers(machine):
            assert run(machine, number, args) == EPERM


def test_x32_numbers_fail() -> None:
    assert {run("x86_64", number | X32) for number in range(601)} == {EPERM}


@pytest.mark.parametrize("machine", ARCHITECTURES)
@given(
    audit=st.integers(0, 2**32 - 1) | st.sampled_from([0x40000003, *(each.audit for each in ARCHITECTURES.values())])
)
def test_a_call_of_another_architecture_kills_the_process(machine: str, audit: int) -> None:
    if audit != ARCHITECTURES[machine].audit:
        assert {run(machine, number, audit=audit) for number in (0, 1, 59, 221, 600)} == {KILL_PROCESS}


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_the_kernel_accepts_the_length_and_the_jumps(machine: str) -> None:
    code = PROGRAMS[machine]
    assert len(code) < 4096
    assert all(step.if_true < 256 and step.if_false < 256 for step in code)
    assert all(0 <= step.value < 2**32 for step in code)
