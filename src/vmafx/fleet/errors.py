"""Errors of the API server, with what the user can do about them.

FleetError
├── NotInstalled        the cluster does not have the CRDs of vmafx
├── NotAllowed          the user lacks a permission
├── NoSuchNamespace
├── NoSuchJob
├── NoSuchNode
├── NoSuchTraining
├── UnreadableTraining  a training that does not match its type
├── BadScore            a score that people gave is invalid
└── JobRejected         the job is invalid
    └── NameTaken       a job with this name exists
"""

from collections.abc import Iterator
from contextlib import contextmanager

from vmafx.kube.errors import AlreadyExists, BadRequest, Forbidden, Invalid, NotFound


class FleetError(Exception):
    """Base of all; its text is one sentence for the user."""


class NotInstalled(FleetError):
    pass


class NotAllowed(FleetError):
    pass


class NoSuchNamespace(FleetError):
    pass


class NoSuchJob(FleetError):
    pass


class NoSuchNode(FleetError):
    pass


class NoSuchTraining(FleetError):
    pass


class UnreadableTraining(FleetError):
    pass


class BadScore(FleetError):
    pass


class JobRejected(FleetError):
    pass


class NameTaken(JobRejected):
    pass


@contextmanager
def explain_errors() -> Iterator[None]:
    """Raise errors of the API server as FleetErrors, whose text says what to do. A missing object stays a NotFound."""
    try:
        yield
    except NotFound as error:
        missing = error.status.details
        if missing.kind == "namespaces":
            raise NoSuchNamespace(
                f"namespace {missing.name} does not exist; create it, or choose another with -n"
            ) from error
        if missing.name:
            raise
        raise NotInstalled(
            "the CRDs of vmafx are not installed in this cluster; "
            "install them: vmafx crd --print | kubectl apply --server-side -f -"
        ) from error
    except Forbidden as error:
        raise NotAllowed(
            f"{error}; reading requires the role view or vmafx-view, submitting jobs requires edit or vmafx-edit"
        ) from error
    except AlreadyExists as error:
        raise NameTaken(f"{error}; choose another --name, or omit it") from error
    except (Invalid, BadRequest) as error:
        raise JobRejected(str(error)) from error
