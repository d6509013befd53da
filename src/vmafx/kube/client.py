"""The client: one method per verb, typed by the resource it is called with."""

from collections.abc import AsyncGenerator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Self, TypeVar
from urllib.parse import urlencode

import msgspec

from vmafx.kube import resources
from vmafx.kube.config import Config
from vmafx.kube.decoding import ListMeta, ListPage, UnreadableObject, decode, decode_page
from vmafx.kube.errors import Expired, NotFound
from vmafx.kube.metrics import ClientMetrics
from vmafx.kube.resources import ObjectKey, Resource, UntypedObject
from vmafx.kube.transport import JSON, ApiRequest, Transport
from vmafx.kube.watch import Watch

T = TypeVar("T")
PAGE_SIZE = 500  # larger pages take more memory and save no time (bench/RESULTS.md)
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
STRICT = "fieldValidation=Strict"  # reject unknown fields instead of dropping them

Propagation = Literal["Background", "Foreground", "Orphan"]


class ObjectCount(NamedTuple):
    """The number of objects at a resourceVersion."""

    number: int
    version: str


class Client:
    """A client of one API server. Use as an async context manager."""

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
        """List the objects of a namespace, or of all. If the continue token expires, list again without pages."""
        items: list[T] = []
        unreadable: tuple[UnreadableObject, ...] = ()
        metadata = ListMeta()
        try:
            async for part in self.pages(resource, namespace, labels=labels, fields=fields, page=page):
                items += part.items
                unreadable += part.unreadable
                metadata = part.metadata
        except Expired:
            async for part in self.pages(resource, namespace, labels=labels, fields=fields, page=0):
                items, unreadable, metadata = part.items, part.unreadable, part.metadata
        return ListPage(items, metadata, unreadable)

    async def pages(
        self,
        resource: Resource[T],
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        page: int = PAGE_SIZE,
        token: str = "",
        metadata_only: bool = False,
    ) -> AsyncGenerator[ListPage[T]]:
        """List page by page, with one page in memory at a time. Raises Expired if the continue token expires.

        With the continue `token` of an earlier page, start after that page. With `metadata_only` the server sends
        apiVersion, kind and metadata of each object, and nothing else.
        """
        path, accept = resource.collection(namespace), METADATA_LIST if metadata_only else JSON
        query = {**_selectors(labels, fields), **({"limit": str(page)} if page else {})}
        if token:
            query["continue"] = token
        while True:
            request = ApiRequest("GET", path, urlencode(query), idempotent=True, accept=accept)
            part = decode_page(await self._transport.call(request), resource.model)
            yield part
            if not part.metadata.continue_:
                return
            query["continue"] = part.metadata.continue_

    async def count(self, resource: Resource[Any], namespace: str = "") -> ObjectCount:
        """Count the objects of a namespace, or of all, while reading at most one of them."""
        request = ApiRequest("GET", resource.collection(namespace), "limit=1", idempotent=True)
        page = decode_page(await self._transport.call(request), msgspec.Raw)
        return ObjectCount(len(page.items) + page.metadata.remainingItemCount, page.metadata.resourceVersion)

    def watch(
        self, resource: Resource[T], namespace: str = "", *, version: str = "", labels: str = "", fields: str = ""
    ) -> Watch[T]:
        """Watch the changes after resourceVersion `version`; see Watch."""
        query = _selectors(labels, fields) | ({"resourceVersion": version} if version else {})
        return Watch(self._transport, resource, resource.collection(namespace), query)

    async def create(
        self, resource: Resource[T], body: T | UntypedObject, namespace: str = "", *, dry_run: bool = False
    ) -> T:
        """Create an object; with `dry_run` the server validates it but does not store it."""
        query = f"{STRICT}&dryRun=All" if dry_run else STRICT
        request = ApiRequest("POST", resource.collection(namespace), query, msgspec.json.encode(body))
        return decode(await self._transport.call(request), resource.model)

    async def merge_patch(
        self, resource: Resource[T], key: ObjectKey, patch: dict[str, Any], subresource: str = ""
    ) -> T:
        """Apply a JSON merge patch. With a resourceVersion in it, raises Conflict if the object was modified since."""
        # If only the response to a guarded patch was lost, a retry would conflict with its own first write.
        guarded = "resourceVersion" in (patch.get("metadata") or {})
        body = msgspec.json.encode(patch)
        return await self._patch(resource, key, MERGE_PATCH, body, STRICT, subresource, idempotent=not guarded)

    async def patch_status(self, resource: Resource[T], key: ObjectKey, status: Any, version: str = "") -> T:
        """Merge-patch the status; with `version`, raises Conflict if the object was modified since."""
        guard = {"metadata": {"resourceVersion": version}} if version else {}
        return await self.merge_patch(resource, key, {"status": status, **guard}, "status")

    async def json_patch(
        self, resource: Resource[T], key: ObjectKey, operations: Sequence[dict[str, Any]], subresource: str = ""
    ) -> T:
        """Apply RFC 6902 operations; raises Invalid if a `test` operation fails."""
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
        """Server-side apply. Raises Conflict if another manager owns a field of `body`; `force` takes it over."""
        query = _apply_query(manager, force)
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
        """Delete an object; raises Conflict if its uid or resourceVersion differs from `uid` or `version`.

        If the response is lost, only a deletion by uid is retried: any other could delete a new object of that name.
        """
        options: dict[str, Any] = {"propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if conditions := {name: value for name, value in (("uid", uid), ("resourceVersion", version)) if value}:
            options["preconditions"] = conditions
        idempotent = bool(uid) and not version
        request = ApiRequest("DELETE", resource.path(key), "", msgspec.json.encode(options), idempotent=idempotent)
        try:
            await self._transport.call(request)
        except NotFound as error:
            if error.tries == 1:  # after a retry, the first request deleted it
                raise

    async def discover(self, api_version: str, kind: str) -> Resource[UntypedObject]:
        """Look up any kind that the server has; its objects are untyped."""
        return await resources.discover_resource(self._transport, api_version, kind)

    async def _patch(
        self, resource: Resource[T], key: ObjectKey, content_type: str, body: bytes, query: str, subresource: str,
        *, idempotent: bool,
    ) -> T:  # fmt: skip
        request = ApiRequest("PATCH", resource.path(key, subresource), query, body, content_type, idempotent)
        return decode(await self._transport.call(request), resource.model)


@lru_cache(16)
def _apply_query(manager: str, force: bool) -> str:
    return f"{STRICT}&{urlencode({'fieldManager': manager, 'force': str(force).lower()})}"


def _selectors(labels: str, fields: str) -> dict[str, str]:
    return {name: value for name, value in (("labelSelector", labels), ("fieldSelector", fields)) if value}
