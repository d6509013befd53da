"""Jobs for clients: submitted, looked up, cancelled, and streamed as they change."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from vmafx.api.job import FINISHED, JobView, VmafxJob
from vmafx.clock import loop_time
from vmafx.controller.caches import ControllerCaches, key_of
from vmafx.controller.errors import invalid, no_namespace
from vmafx.controller.messages import is_cancelled
from vmafx.http.errors import CallRefused
from vmafx.jobs.state import uid_of
from vmafx.kube import JOBS, NAMESPACES, Client, ObjectKey
from vmafx.kube.errors import AlreadyExists, BadRequest, Conflict, Expired, Forbidden, Invalid, NotFound
from vmafx.kube.resources import UntypedObject
from vmafx.kube.watch import Added, Modified
from vmafx.runtime.store import ObjectChange

MAX_SPEC = 1 << 16  # bytes
SCAN_INTERVAL = 10.0  # seconds between two readings of all finished jobs, at least
MAX_REMEMBERED = 100_000
UNTYPED = JOBS.seen_as(dict)


class _Named(msgspec.Struct):
    name: str
    namespace: str
    uid: str


class _Head(msgspec.Struct):
    metadata: _Named


class ClientJobs:
    """Clients know a job by its uid. Unfinished ones are in the cache; who asks for others makes us look once."""

    def __init__(self, client: Client, caches: ControllerCaches) -> None:
        self._client, self._caches = client, caches
        self._ended: OrderedDict[str, ObjectKey] = OrderedDict()  # by uid; the oldest first
        self._scanned: float | None = None
        self._scanning = asyncio.Lock()
        caches.jobs.on_change(self._job_changed)

    def _job_changed(self, change: ObjectChange[JobView]) -> None:
        for job in (change.old, change.new):
            if job is not None and (change.new is None or job.status.phase in FINISHED):
                self._remember(job.metadata.uid, change.key)

    def _remember(self, uid: str, key: ObjectKey) -> None:
        self._ended[uid] = key
        self._ended.move_to_end(uid)
        if len(self._ended) > MAX_REMEMBERED:
            self._ended.popitem(last=False)

    async def submit(self, namespace: str, name: str, spec: dict[str, Any]) -> VmafxJob:
        """Make a VmafxJob of it; what is wrong with it, the server's schema says."""
        meta = {"name": name} if name else {"generateName": "job-"}
        body: UntypedObject = {"apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": meta, "spec": spec}
        try:
            made = await self._client.create(UNTYPED, body, namespace)
        except AlreadyExists as error:
            message = (
                f"a job named {name!r} exists already in namespace {namespace!r}; choose another name, or give none"
            )
            raise CallRefused("ALREADY_EXISTS", message) from error
        except (Invalid, BadRequest) as error:
            raise invalid(error) from error
        except NotFound as error:
            raise no_namespace(namespace) from error
        except Forbidden as error:  # ours are not theirs, but a quota or an admission rule is
            raise CallRefused("FAILED_PRECONDITION", str(error)) from error
        return msgspec.convert(made, VmafxJob)

    async def get(self, wanted: str) -> VmafxJob:
        """By its uid, or by the name of one of its attempts."""
        key = await self._key(wanted)
        try:
            job = await self._client.get(JOBS, key)
        except NotFound as error:
            raise _unknown(wanted) from error
        if job.metadata.uid not in {wanted, uid_of(wanted)}:  # a namesake has come since
            raise _unknown(wanted)
        return job

    async def cancel(self, job: VmafxJob) -> tuple[bool, str]:
        """Request its cancellation: whether it is cancelled or will be, and what to tell the caller.

        Cancelling again succeeds, so that a caller who got no answer can simply repeat the call.
        """
        if is_cancelled(job):
            return True, "the job was cancelled already"
        if job.status.phase in FINISHED:
            return False, f"the job has {job.status.phase.lower()} already; there is nothing to cancel"
        if job.spec.cancel:
            return True, "cancellation was requested already; the job is about to end"
        patch = {"metadata": {"uid": job.metadata.uid}, "spec": {"cancel": True}}
        try:
            await self._client.merge_patch(UNTYPED, ObjectKey(job.metadata.namespace, job.metadata.name), patch)
        except (NotFound, Conflict) as error:
            raise _unknown(job.metadata.uid) from error
        return True, ""

    async def _key(self, wanted: str) -> ObjectKey:
        if (job := self._caches.job(wanted)) is not None:
            return key_of(job)
        key = self._ended_key(wanted) or await self._scan({wanted, uid_of(wanted)})
        if key is None:
            raise _unknown(wanted)
        return key

    def _ended_key(self, wanted: str) -> ObjectKey | None:
        return self._ended.get(wanted) or self._ended.get(uid_of(wanted))

    async def _scan(self, wanted: set[str]) -> ObjectKey | None:
        """Read the names of all jobs: there is no other way to one that ended before this process began."""
        async with self._scanning:
            for uid in wanted & self._ended.keys():  # somebody else has looked meanwhile
                return self._ended[uid]
            if self._scanned is not None and loop_time() - self._scanned < SCAN_INTERVAL:
                return None
            heads = JOBS.seen_as(_Head)
            async for page in self._client.pages(heads, self._caches.jobs.namespace):
                for one in page.items:
                    key = ObjectKey(one.metadata.namespace, one.metadata.name)
                    self._remember(one.metadata.uid, key)
                    if one.metadata.uid in wanted:
                        return key
            self._scanned = loop_time()
            return None


def spec_of(reference: str, distorted: str, model: str, backend: str, more: str) -> dict[str, Any]:
    """A VmafxJob's spec, from what a request says; what it says twice must be the same."""
    spec: dict[str, Any] = {}
    if more:
        if len(more) > MAX_SPEC:
            raise CallRefused("INVALID_ARGUMENT", f"spec is longer than {MAX_SPEC:,} bytes")
        try:
            spec = msgspec.json.decode(more, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeEncodeError) as error:
            raise CallRefused("INVALID_ARGUMENT", f"spec must be a JSON object in a string: {error}") from error
    said = {"reference": reference, "distorted": distorted, "model": model, "backend": backend}
    for name, value in said.items():
        if value and spec.setdefault(name, value) != value:
            raise CallRefused("INVALID_ARGUMENT", f"scoring.{name} and {name} in spec differ; give only one of them")
    if missing := [f"scoring.{name}" for name in ("reference", "distorted") if not spec.get(name)]:
        raise CallRefused(
            "INVALID_ARGUMENT",
            f"missing fields: {', '.join(missing)}; give the URI of each clip, such as file:///clips/a.mp4",
        )
    return spec


def _unknown(wanted: str) -> CallRefused:
    return CallRefused(
        "NOT_FOUND",
        f"no job has the id {wanted[:100]!r}: use the id from its submission, not its name; a deleted job is not found",
    )


MAX_STREAMS = 100


class JobStreams:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._open = 0

    async def jobs(self, namespace: str) -> AsyncGenerator[VmafxJob]:
        """All jobs as they are, and then each as it becomes; after a break, all of them again."""
        if self._open >= MAX_STREAMS:
            raise CallRefused(
                "RESOURCE_EXHAUSTED", f"{MAX_STREAMS} streams are open already; close one, or poll GetJob"
            )
        self._open += 1
        try:
            if namespace and await self._is_missing(namespace):
                raise no_namespace(namespace)
            while True:
                try:
                    async with aclosing(self._follow(namespace)) as jobs:
                        async for job in jobs:
                            yield job
                except Expired:
                    await asyncio.sleep(1)
        finally:
            self._open -= 1

    async def _is_missing(self, namespace: str) -> bool:
        """For a namespace that does not exist, the server lists no jobs and no error. False if we may not ask."""
        try:
            await self._client.get(NAMESPACES, ObjectKey("", namespace))
        except NotFound:
            return True
        except Forbidden:
            return False
        return False

    async def _follow(self, namespace: str) -> AsyncGenerator[VmafxJob]:
        version = ""
        async with aclosing(self._client.pages(JOBS, namespace)) as pages:
            async for page in pages:
                version = page.metadata.resourceVersion
                for job in page.items:
                    yield job
        async with aclosing(aiter(self._client.watch(JOBS, namespace, version=version))) as batches:
            async for batch in batches:
                for event in batch:
                    if isinstance(event, Added | Modified):
                        yield event.object
