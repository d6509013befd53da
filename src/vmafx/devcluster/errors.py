"""Errors of development clusters; each text says what to do.

DevClusterError
├── BinariesUnavailable  a component cannot be found, downloaded or built
├── ComponentFailed      a component ended, or was not ready in time
│   └── PortInUse        another process listens on its port
└── InsufficientDisk     the disk is full or not writable
"""


class DevClusterError(Exception):
    """The cluster cannot be started or used."""


class BinariesUnavailable(DevClusterError):
    """A component cannot be found, downloaded or built."""


class ComponentFailed(DevClusterError):
    """A component ended, or was not ready in time."""


class PortInUse(ComponentFailed):
    """Another process listens on a component's port."""


class InsufficientDisk(DevClusterError):
    """The disk is full or not writable."""
