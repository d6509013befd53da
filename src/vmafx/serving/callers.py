"""Who calls: whose jobs a caller sees, and whose share of the queue a request counts to."""

from typing import NamedTuple

from vmafx.auth.access import AccessControl, InsecureAccess, RejectionLog
from vmafx.auth.credentials import CallerCredentials
from vmafx.auth.fair_limit import sharing_key
from vmafx.http.errors import StatusError
from vmafx.kube.errors import KubeError
from vmafx.logs import log

EVERYBODY = ""


class ServedCaller(NamedTuple):
    owner: str  # of jobs; without authentication, all jobs belong to everybody
    share: str  # of the queue and of other limits


class Callers:
    """Identifies callers. With Kubernetes tokens, they must be allowed to create VmafxJobs in the namespace."""

    def __init__(self, access: AccessControl, namespace: str = "") -> None:
        self.access, self._namespace = access, namespace
        self._rejections = RejectionLog()

    async def identify(self, credentials: CallerCredentials, call: str) -> ServedCaller:
        """Raises StatusError if the credentials are missing or invalid, or do not suffice. `call` is for the log."""
        if isinstance(self.access, InsecureAccess):
            return ServedCaller(EVERYBODY, sharing_key("", credentials.peer))
        with self._rejections.log_rejection(call, credentials):
            try:
                caller = await self.access.authorize(credentials, "create", "vmafxjobs", self._namespace)
            except KubeError as error:
                log.warn("cannot review a token", error=str(error))
                message = "the Kubernetes API cannot check your token now; try again later"
                raise StatusError("UNAVAILABLE", message) from error
        return ServedCaller(caller.user, sharing_key(caller.user, credentials.peer))
