"""Who is this, and may they? The API server knows; here it is asked, by TokenReview and SubjectAccessReview.

Never more than AT_ONCE at a time, whatever comes in. No answer is kept here, and neither token nor answer is logged.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from vmafx.api.meta import GROUP, ApiModel
from vmafx.clock import loop_time
from vmafx.http.errors import CallRefused
from vmafx.kube import Client, Resource
from vmafx.kube.core import ACCESS_REVIEWS, TOKEN_REVIEWS, UserInfo
from vmafx.kube.errors import KubeError
from vmafx.kube.resources import UntypedObject
from vmafx.logs import log

AUDIENCE = "vmafx-controller"
MAX_CONCURRENT = 16  # of the client's 40 connections: the rest is for the work
MAX_WAIT = 2.0  # seconds for one's turn
REVIEW_TIMEOUT = 10.0  # seconds, with the client's own tries
LOG_INTERVAL = 10.0  # seconds between lines in the log that the server cannot be asked

M = TypeVar("M", bound=ApiModel)


class ResourceAction(NamedTuple):
    """What somebody wants to do to a resource of ours; without a name, to all of the namespace."""

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
    """Asks one API server."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._turns = asyncio.Semaphore(MAX_CONCURRENT)
        self._told_at = float("-inf")

    async def token(self, token: str) -> UserInfo | None:
        """Whose token it is; None if it is nobody's, or not meant for us."""
        review = await self._ask(TOKEN_REVIEWS, {"token": token, "audiences": [AUDIENCE]})
        ours = review.status.authenticated and AUDIENCE in review.status.audiences
        return review.status.user if ours and review.status.user.username else None

    async def access(self, user: UserInfo, action: ResourceAction) -> bool:
        attributes = {"group": GROUP, **action._asdict()}
        who = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
        status = (await self._ask(ACCESS_REVIEWS, {**who, "resourceAttributes": attributes})).status
        return status.allowed and not status.denied

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """To ask is for those who have a turn."""
        try:
            async with asyncio.timeout(MAX_WAIT):
                await self._turns.acquire()
        except TimeoutError:
            raise CallRefused(
                "RESOURCE_EXHAUSTED", "too many new callers at once; try again in a few seconds"
            ) from None
        try:
            yield
        finally:
            self._turns.release()

    async def _ask(self, resource: Resource[M], spec: dict[str, Any]) -> M:
        body: UntypedObject = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        try:
            async with asyncio.timeout(REVIEW_TIMEOUT):
                return await self._client.create(resource, body)
        except (KubeError, TimeoutError) as error:
            self._tell(resource, error)
            raise CallRefused("UNAVAILABLE", "the API server cannot be asked who you are; try again") from None

    def _tell(self, resource: Resource[Any], error: Exception) -> None:
        """By the error's type alone: its text might be an answer that repeats what was asked, token and all."""
        now = loop_time()
        if now - self._told_at >= LOG_INTERVAL:
            self._told_at = now
            log.error("the API server did not answer a review", create=resource.plural, error=type(error).__name__)
