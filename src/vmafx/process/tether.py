"""Run a command that does not outlive its parent: `python tether.py PARENT_PID COMMAND...`.

A script of its own, with nothing imported but the standard library: the kernel's promise (PR_SET_PDEATHSIG) has to be
asked for in the child, after the fork, and it survives exec.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def tethered(command: list[str]) -> list[str]:
    """The command line that runs `command` so that it ends with this process, however this one ends."""
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - no shell, and that is the point


if __name__ == "__main__":
    main()
