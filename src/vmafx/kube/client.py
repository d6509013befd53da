"""The verbs of the Kubernetes API, typed by the resource they are given."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, Literal, NamedTuple, Self, TypeVar
from urllib.parse import urlencode

import msgspec

from vmafx.kube import resources
from vmafx.kube.config import Config
from vmafx.kube.decoding import ListMeta, ListPage, UnreadableObject, decode, decode_page
from vmafx.kube.errors import Expired, NotFound
from vmafx.kube.metrics import ClientMetrics
from vmafx.kube.resources import ObjectKey, Resource, UntypedObject
from vmafx.kube.transport import ApiRequest, Transport
from vmafx.kube.watch import Watch

T = TypeVar("T")
PAGE_SIZE = 500  # more takes memory and saves nothing (bench/RESULTS.md)
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
STRICT = "fieldValidation=Strict"  # an unknown field is an error, never silently dropped

Propagation = Literal["Background", "Foreground", "Orphan"]


class ObjectCount(NamedTuple):
    """So many, at that version."""

    number: int
    version: str


class Client:
    """Calls one API server. Use as an async context manager."""

    def __init__(self, config: Config, metrics: ClientMetrics | None = None) -> None:
        self.config = config
        self._transport = Transport(config, metrics)

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.__aexit__()

    async def get(self, resource: Resource[T], key: ObjectKey) -> T:
        request = ApiRequest("GET", resource.path(key), idempotent=True)
        return decode(await self._transport.call(request), resource.model)

    async def list(
        self, resource: Resource[T], namespace: str = "", *, labels: str = "", fields: str = "", page: int = PAGE_SIZE
    ) -> ListPage[T]:
        """All objects, of one namespace or of all. A list that outlives its continue token is begun again, whole."""
        items: list[T] = []
        aside: tuple[UnreadableObject, ...] = ()
        last = ListMeta()
        try:
            async for part in self.pages(resource, namespace, labels=labels, fields=fields, page=page):
                items += part.items
                aside += part.unreadable
                last = part.metadata
        except Expired:
            async for part in self.pages(resource, namespace, labels=labels, fields=fields, page=0):
                items, aside, last = part.items, part.unreadable, part.metadata
        return ListPage(items, last, aside)

    async def pages(
        self, resource: Resource[T], namespace: str = "", *, labels: str = "", fields: str = "", page: int = PAGE_SIZE
    ) -> AsyncGenerator[ListPage[T]]:
        """The list in parts, so that no more than one part is in memory. Expired: it took too long; begin again."""
        query = {**_selectors(labels, fields), **({"limit": str(page)} if page else {})}
        while True:
            request = ApiRequest("GET", resource.collection(namespace), urlencode(query), idempotent=True)
            part = decode_page(await self._transport.call(request), resource.model)
            yield part
            if not part.metadata.continue_:
                return
            query["continue"] = part.metadata.continue_

    async def count(self, resource: Resource[Any], namespace: str = "") -> ObjectCount:
        """How many there are, of one namespace or of all, without reading more than one."""
        request = ApiRequest("GET", resource.collection(namespace), "limit=1", idempotent=True)
        page = decode_page(await self._transport.call(request), msgspec.Raw)
        return ObjectCount(len(page.items) + page.metadata.remainingItemCount, page.metadata.resourceVersion)

    def watch(
        self, resource: Resource[T], namespace: str = "", *, version: str = "", labels: str = "", fields: str = ""
    ) -> Watch[T]:
        """The changes from `version` on, resumed until the caller stops or the version is too old (Expired)."""
        query = _selectors(labels, fields) | ({"resourceVersion": version} if version else {})
        return Watch(self._transport, resource, resource.collection(namespace), query)

    async def create(
        self, resource: Resource[T], body: T | UntypedObject, namespace: str = "", *, dry_run: bool = False
    ) -> T:
        """Create; with `dry_run` the server only checks whether it could."""
        query = f"{STRICT}&dryRun=All" if dry_run else STRICT
        request = ApiRequest("POST", resource.collection(namespace), query, msgspec.json.encode(body))
        return decode(await self._transport.call(request), resource.model)

    async def merge_patch(
        self, resource: Resource[T], key: ObjectKey, patch: dict[str, Any], subresource: str = ""
    ) -> T:
        """Change what `patch` names; a patch with a resourceVersion is refused (Conflict) if somebody wrote since."""
        # Had a guarded one arrived and only its answer been lost, a second would be told that somebody else wrote.
        guarded = "resourceVersion" in (patch.get("metadata") or {})
        body = msgspec.json.encode(patch)
        return await self._patch(resource, key, MERGE_PATCH, body, STRICT, subresource, idempotent=not guarded)

    async def patch_status(self, resource: Resource[T], key: ObjectKey, status: Any, version: str = "") -> T:
        """Merge `status` into the object's status; with `version`, only if nobody wrote since."""
        guard = {"metadata": {"resourceVersion": version}} if version else {}
        return await self.merge_patch(resource, key, {"status": status, **guard}, "status")

    async def json_patch(
        self, resource: Resource[T], key: ObjectKey, operations: Sequence[dict[str, Any]], subresource: str = ""
    ) -> T:
        """RFC 6902 operations; one that begins with a `test` is refused (Invalid) where the test fails."""
        body = msgspec.json.encode(operations)
        return await self._patch(resource, key, JSON_PATCH, body, STRICT, subresource, idempotent=False)

    async def apply(
        self,
        resource: Resource[T],
        key: ObjectKey,
        body: Any,
        *,
        manager: str,
        force: bool = False,
        subresource: str = "",
    ) -> T:
        """Server-side apply: own exactly the fields in `body`. Conflict: another manager owns one; `force` takes it."""
        query = f"{STRICT}&{urlencode({'fieldManager': manager, 'force': str(force).lower()})}"
        return await self._patch(
            resource, key, APPLY_PATCH, msgspec.json.encode(body), query, subresource, idempotent=True
        )

    async def delete(
        self,
        resource: Resource[Any],
        key: ObjectKey,
        *,
        uid: str = "",
        version: str = "",
        propagation: Propagation = "Background",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete; with `uid` or `version` only that very object (Conflict otherwise).

        Only a deletion by uid is tried again when its answer is lost: any other might find a namesake made since.
        """
        options: dict[str, Any] = {"propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if conditions := {name: value for name, value in (("uid", uid), ("resourceVersion", version)) if value}:
            options["preconditions"] = conditions
        again = bool(uid) and not version
        request = ApiRequest("DELETE", resource.path(key), "", msgspec.json.encode(options), idempotent=again)
        try:
            await self._transport.call(request)
        except NotFound as error:
            if error.tries == 1:
                raise

    async def discover(self, api_version: str, kind: str) -> Resource[UntypedObject]:
        """Any kind that the server knows, untyped."""
        return await resources.discover_resource(self._transport, api_version, kind)

    async def _patch(
        self, resource: Resource[T], key: ObjectKey, kind: str, body: bytes, query: str, subresource: str,
        *, idempotent: bool,
    ) -> T:  # fmt: skip
        path = resource.path(key, subresource)
        request = ApiRequest("PATCH", path, query, body, kind, idempotent)
        return decode(await self._transport.call(request), resource.model)


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {name: value for name, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
