"""Landlock: the kernel refuses this process every file, TCP port and foreign process that it does not have open yet."""

import ctypes
import os
import struct
import sys

CREATE_RULESET, RESTRICT_SELF = 444, 446  # the same numbers on every architecture
CREATE_RULESET_VERSION = 1

# How many rights each version of the ABI has (linux/landlock.h). The kernel refuses a ruleset with more.
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
TCP_RIGHTS = {4: 2}
SCOPES = {6: 2}  # abstract UNIX sockets, signals
NEWEST = 7  # what it adds is for logging


def restrict() -> int:
    """Give up every right that Landlock handles, for this thread and those it starts; returns the version of the ABI.

    Needs PR_SET_NO_NEW_PRIVS, or root. 0 if the kernel has no Landlock.
    """
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None)
    libc.syscall.restype = ctypes.c_long
    nothing, number = ctypes.c_void_p(None), ctypes.c_long
    version = min(libc.syscall(number(CREATE_RULESET), nothing, number(0), number(CREATE_RULESET_VERSION)), NEWEST)
    if version < 1:
        return 0
    handled = struct.pack("3Q", *(_all_rights(rights, version) for rights in (FILE_RIGHTS, TCP_RIGHTS, SCOPES)))
    ruleset = libc.syscall(number(CREATE_RULESET), handled, number(len(handled)), number(0))
    if ruleset < 0:
        return 0
    in_force = libc.syscall(number(RESTRICT_SELF), number(ruleset), number(0)) == 0
    os.close(ruleset)
    return version if in_force else 0


def _all_rights(counts: dict[int, int], version: int) -> int:
    return (1 << max((count for since, count in counts.items() if since <= version), default=0)) - 1
