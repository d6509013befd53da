"""What can go wrong on the way to a running control plane; each text says what to do about it.

DevClusterError
├── NoBinaries       a component could be neither found, fetched nor built
├── StartFailed      a component ended, or was not ready in time
│   └── PortTaken    somebody else listens on its port
└── NoRoom           the disk is full, or cannot be written
"""


class DevClusterError(Exception):
    """The control plane cannot be had; the text is fit for people."""


class NoBinaries(DevClusterError):
    """A component could be neither found, fetched nor built."""


class StartFailed(DevClusterError):
    """A component ended, or was not ready in time."""


class PortTaken(StartFailed):
    """Somebody else listens on a component's port."""


class NoRoom(DevClusterError):
    """The disk is full, or cannot be written."""
