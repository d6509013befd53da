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


class Refused(FleetError):
    pass


class NameTaken(Refused):
    pass


@contextmanager
def explained() -> Iterator[None]:
    """What the server says, with what to do about it."""
    try:
        yield
    except NotFound as error:
        missing = error.status.details
        if missing.kind == "namespaces":
            raise NoSuchNamespace(f"there is no namespace {missing.name}; make it, or name another by -n") from error
        if missing.name:
            raise
        raise NotInstalled(
            "this cluster does not have the kinds of vmafx; "
            "install them: vmafx crd --print | kubectl apply --server-side -f -"
        ) from error
    except Forbidden as error:
        raise NotAllowed(
            f"{error}; the role view or vmafx-view lets you look, edit or vmafx-edit lets you hand in jobs"
        ) from error
    except AlreadyExists as error:
        raise NameTaken(f"{error}; give another --name, or none") from error
    except (Invalid, BadRequest) as error:
        raise Refused(str(error)) from error
