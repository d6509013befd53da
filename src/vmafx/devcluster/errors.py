"""What can go wrong on the way to a running control plane; each text says what to do about it.

DevClusterError
├── NoBinaries       a component could be neither found, fetched nor built
├── StartFailed      a component ended, or was not ready in time
│   └── PortTaken    somebody else listens on its port
└── NoRoom           the disk is full, or cannot be written
"""


class DevClusterError(Exception):
    """The control plane cannot be had; the text is fit for people."""


class BinariesUnavailable(DevClusterError):
    """A component could be neither found, fetched nor built."""


class ComponentFailed(DevClusterError):
    """A component ended, or was not ready in time."""


class PortInUse(ComponentFailed):
    """Somebody else listens on a component's port."""


class InsufficientDisk(DevClusterError):
    """The disk is full, or cannot be written."""
