"""Run a command that does not outlive its parent: `python tether.py PARENT_PID COMMAND...`.

A script that imports only the standard library: PR_SET_PDEATHSIG has to be set in the child, between fork and exec.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def tethered(command: list[str]) -> list[str]:
    """The command line that runs `command` so that the kernel kills it when this process ends, for any reason."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent, which has this pid, ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before prctl
        sys.exit(1)


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    end_with_parent(parent)
    os.execv(command[0], command)  # noqa: S606 - without a shell on purpose


if __name__ == "__main__":
    main()
