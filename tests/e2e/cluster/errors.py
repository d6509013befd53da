"""Errors of the cluster for end-to-end tests.

E2EError
├── MachineUnsuitable  something that this machine lacks: `make e2e` exits with status UNSUITABLE
├── StartFailed        a component ended, or was not ready in time
└── CommandFailed      kubectl or another command failed
"""

UNSUITABLE = 77  # exit status of tests that this machine cannot run, as in Automake


class E2EError(Exception):
    """The cluster cannot be started or used."""


class MachineUnsuitable(E2EError):
    """This machine cannot run the cluster; the text names all that is missing."""


class StartFailed(E2EError):
    """A component ended, or was not ready in time."""


class CommandFailed(E2EError):
    """A command failed; the text has its errors."""
