"""Who calls: whose jobs a caller sees, and whose share of the queue a request counts to."""

from typing import NamedTuple

from vmafx.auth.access import AccessControl, InsecureAccess
from vmafx.auth.credentials import CallerCredentials
from vmafx.auth.fair_limit import sharing_key

EVERYBODY = ""


class ServedCaller(NamedTuple):
    owner: str  # of jobs; without authentication, all jobs belong to everybody
    share: str  # of the queue and of other limits


class Callers:
    """Identifies callers. With Kubernetes tokens, they must be allowed to create VmafxJobs in the namespace."""

    def __init__(self, access: AccessControl, namespace: str = "") -> None:
        self.access, self._namespace = access, namespace

    async def identify(self, credentials: CallerCredentials) -> ServedCaller:
        """Raises StatusError if the credentials are missing or invalid, or do not suffice."""
        if isinstance(self.access, InsecureAccess):
            return ServedCaller(EVERYBODY, sharing_key("", credentials.peer))
        caller = await self.access.authorize(credentials, "create", "vmafxjobs", self._namespace)
        return ServedCaller(caller.user, sharing_key(caller.user, credentials.peer))
