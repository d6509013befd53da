"""What can go wrong beside the client's own errors, whose texts say what is wrong and not what to do about it.

FleetError
├── NotInstalled  the cluster does not have our kinds
├── NotAllowed    we may not
├── NoSuchNamespace
├── NoSuchJob     there is none of that name
├── NoSuchNode
└── Refused       the job is not one that the server takes
    └── NameTaken
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


class JobRejected(FleetError):
    pass


class NameTaken(JobRejected):
    pass


@contextmanager
def explain_errors() -> Iterator[None]:
    """What the server says, with what to do about it."""
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
            f"{error}; to read you need the role view or vmafx-view, to submit jobs edit or vmafx-edit"
        ) from error
    except AlreadyExists as error:
        raise NameTaken(f"{error}; choose another --name, or omit it") from error
    except (Invalid, BadRequest) as error:
        raise JobRejected(str(error)) from error
