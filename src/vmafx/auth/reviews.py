"""TokenReview and SubjectAccessReview requests to the API server.

At most MAX_CONCURRENT run at a time. Nothing is cached here, and neither tokens nor replies are logged.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from vmafx.api.meta import GROUP, ApiModel
from vmafx.clock import loop_time
from vmafx.http.errors import StatusError
from vmafx.kube import Client, Resource
from vmafx.kube.core import ACCESS_REVIEWS, TOKEN_REVIEWS, UserInfo
from vmafx.kube.errors import KubeError
from vmafx.kube.resources import UntypedObject
from vmafx.logs import log

AUDIENCE = "vmafx-controller"
MAX_CONCURRENT = 16  # of the client's 40 connections; the others stay free for jobs and nodes
MAX_UNKNOWN = 12  # of them for tokens that were never valid; the others stay free for known callers
MAX_WAIT = 2.0  # seconds that the review of a token that was never valid waits to start
MAX_KNOWN_WAIT = 5.0  # seconds that the review of a known caller waits to start: heartbeats have 8
REVIEW_TIMEOUT = 10.0  # seconds, including the client's retries
LOG_INTERVAL = 10.0  # seconds between log lines about failed reviews

M = TypeVar("M", bound=ApiModel)


class ResourceAction(NamedTuple):
    """A verb on a vmafx resource; without a name, on all objects in the namespace."""

    verb: str
    resource: str
    namespace: str
    name: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        which = f" {self.name!r}" if self.name else ""
        return f"{self.verb} {what}{which} in {f'namespace {self.namespace!r}' if self.namespace else 'all namespaces'}"


class AccessReviewer:
    """Creates reviews with one Kubernetes client; StatusError if the API server does not answer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._concurrency = asyncio.Semaphore(MAX_CONCURRENT)
        self._unknown = asyncio.Semaphore(MAX_UNKNOWN)
        self._logged_at = float("-inf")

    async def review_token(self, token: str) -> UserInfo | None:
        """Return the token's user; None if the token is invalid or for another audience."""
        status = (await self._create(TOKEN_REVIEWS, {"token": token, "audiences": [AUDIENCE]})).status
        valid = status.authenticated and AUDIENCE in status.audiences
        return status.user if valid and status.user.username else None

    async def review_access(self, user: UserInfo, action: ResourceAction) -> bool:
        attributes = {"group": GROUP, **action._asdict()}
        subject = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
        status = (await self._create(ACCESS_REVIEWS, {**subject, "resourceAttributes": attributes})).status
        return status.allowed and not status.denied

    @asynccontextmanager
    async def limit_concurrency(self, *, known: bool) -> AsyncIterator[None]:
        """Enter this around each review: it waits until few enough run. `known` is whether the caller was valid."""
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(MAX_KNOWN_WAIT if known else MAX_WAIT):
                    if not known:
                        await held.enter_async_context(self._unknown)
                    await held.enter_async_context(self._concurrency)
            except TimeoutError:
                if known:
                    raise StatusError(
                        "UNAVAILABLE", "too many access reviews at once; try again in a few seconds"
                    ) from None
                raise StatusError(
                    "RESOURCE_EXHAUSTED", "too many new callers at once; try again in a few seconds"
                ) from None
            yield

    async def _create(self, resource: Resource[M], spec: dict[str, Any]) -> M:
        body: UntypedObject = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        try:
            async with asyncio.timeout(REVIEW_TIMEOUT):
                return await self._client.create(resource, body)
        except (KubeError, TimeoutError) as error:
            self._log(resource, error)
            raise StatusError(
                "UNAVAILABLE", "the Kubernetes API did not answer the access review of this call; try again"
            ) from None

    def _log(self, resource: Resource[Any], error: Exception) -> None:
        """Log only the type of the error: its text may repeat the request, including the token."""
        now = loop_time()
        if now - self._logged_at >= LOG_INTERVAL:
            self._logged_at = now
            log.error("access review failed", resource=resource.plural, error=type(error).__name__)
