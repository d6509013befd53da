"""Who calls: whose jobs a caller sees, and whose share of the queue a request counts to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from vmafx.auth.access import AccessControl, InsecureAccess, RejectionLog, TokenAccess
from vmafx.auth.credentials import CallerCredentials
from vmafx.auth.fair_limit import sharing_key
from vmafx.auth.keys import InvalidKeys, KeyAccess
from vmafx.http.errors import StatusError
from vmafx.kube import Client, load_config
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


class CallerPolicy(NamedTuple):
    """How callers of a server prove who they are: `auth` is none, keys or token."""

    auth: str
    keys: Path | None = None
    kubeconfig: str = ""
    namespace: str = ""


@asynccontextmanager
async def open_callers(policy: CallerPolicy) -> AsyncIterator[Callers]:
    """Raises InvalidKeys or KubeError if the credentials of callers could not be checked."""
    if policy.auth == "token":
        config = load_config(policy.kubeconfig or None)
        async with Client(config) as client:
            yield Callers(TokenAccess(client), policy.namespace or config.namespace)
        return
    access: AccessControl = InsecureAccess()
    if policy.auth == "keys":
        if policy.keys is None:
            raise InvalidKeys("--auth keys needs the file with the keys: set --keys")
        access = KeyAccess(policy.keys)
    else:
        log.warn("everybody who reaches this server may use it; see --auth")
    yield Callers(access)
