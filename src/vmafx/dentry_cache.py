"""Opens files that the kernel can find without the disk: a slow disk then delays no event loop.

Linux keeps the names that were looked up before in its dentry cache. A lookup limited to it either succeeds at once or
fails at once.
"""

import ctypes
import os
import struct
import sys

OPENAT2 = 437  # the same number on every architecture that vmafx runs on
AT_FDCWD = -100
RESOLVE_NO_SYMLINKS, RESOLVE_CACHED = 0x04, 0x20  # the latter since Linux 5.12
_RESOLVE = RESOLVE_NO_SYMLINKS | RESOLVE_CACHED
_HOW = struct.pack("3Q", os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE) if sys.platform == "linux" else b""

# File systems whose inodes are in memory while a name of them is cached (linux/magic.h). Others may ask a server before
# they answer fstat(): NFS and FUSE, and overlayfs, which may lie over those.
_IN_MEMORY = {
    0xEF53,  # ext2, ext3, ext4
    0x58465342,  # xfs
    0x9123683E,  # btrfs
    0xF2F52010,  # f2fs
    0x01021994,  # tmpfs
    0x2FC12FC1,  # zfs
}

# The calls return at once, so that it would only cost time to release the interpreter's lock for them.
_libc = ctypes.PyDLL(None)
_libc.syscall.restype = ctypes.c_long
_number = ctypes.c_long
_statfs = getattr(_libc, "fstatfs", None)


def open_cached(path: bytes) -> int | None:
    """A descriptor that refers to the file (O_PATH), as os.open; None if the path cannot be looked up without waiting.

    None also if there is no such file, if a symbolic link leads to it, and where the kernel does not support such
    lookups.
    """
    if not _HOW:
        return None
    fd: int = _libc.syscall(_number(OPENAT2), _number(AT_FDCWD), path, _HOW, _number(len(_HOW)))
    return fd if fd >= 0 else None


def keeps_inodes(fd: int) -> bool:
    """Whether the file system of an open file answers fstat() from memory."""
    if _statfs is None or sys.platform != "linux":
        return False
    status = ctypes.create_string_buffer(256)  # struct statfs has 120 bytes at most, and begins with the type
    if _statfs(fd, status) != 0:
        return False
    size = ctypes.sizeof(ctypes.c_long)
    return int.from_bytes(status.raw[:size], sys.byteorder) & 0xFFFFFFFF in _IN_MEMORY
