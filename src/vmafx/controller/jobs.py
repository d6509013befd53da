"""Jobs for clients: submit, get, cancel, list, and stream changes."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import Any, NamedTuple, get_args

import msgspec

from vmafx.api.job import FINISHED, JobView, Phase, VmafxJob
from vmafx.auth.cache import ExpiringCache
from vmafx.clock import loop_time
from vmafx.controller.caches import ControllerCaches
from vmafx.controller.errors import invalid_object, namespace_not_found
from vmafx.controller.messages import is_cancelled
from vmafx.controller.paths import SubmittedSpec, with_uris
from vmafx.http.errors import StatusError
from vmafx.jobs.attempt import uid_of
from vmafx.kube import JOBS, NAMESPACES, Client, ObjectKey, key_of
from vmafx.kube.decoding import ListPage
from vmafx.kube.errors import AlreadyExists, BadRequest, Conflict, Expired, Forbidden, Invalid, NotFound
from vmafx.kube.resources import UntypedObject
from vmafx.kube.watch import Added, Modified
from vmafx.runtime.store import ObjectChange

MAX_SPEC = 1 << 16  # bytes
SEARCH_INTERVAL = 1.0  # seconds, at least, between two lists of the jobs of a namespace for searches
MAX_LISTS = 4  # for searches at the same time; the client has 40 connections
MAX_SEARCHED = 1024  # namespaces whose last search is remembered
MISSING_TTL = 60.0  # seconds for which a job that a list did not have is not searched again
MAX_REMEMBERED = 100_000  # keys of jobs outside the cache
MAX_MISSING = 10_000
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
UNTYPED = JOBS.decoded_as(dict)


class _JobMeta(msgspec.Struct):
    name: str
    namespace: str
    uid: str


class _JobHead(msgspec.Struct):
    metadata: _JobMeta


JOB_HEADS = JOBS.decoded_as(_JobHead)


class _FullList(NamedTuple):
    """A list of jobs that was read to its end."""

    started: float
    ended: float
    remembered_before: int  # jobs that this replica had remembered, in all, when the list was started


class _NamespaceSearch:
    """The searches in one namespace, or in all: one at a time lists the jobs."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.last: _FullList | None = None

    def answers(self, called_at: float, remembered: int) -> bool:
        """Whether a job that a call searched for here, and that is not remembered, does not exist.

        Not if so many were remembered since that those of the list may be forgotten again.
        """
        last = self.last
        return last is not None and last.started >= called_at and remembered - last.remembered_before <= MAX_REMEMBERED


class ClientJobs:
    """Jobs by their uid, which is the ID that clients know.

    The cache has the unfinished jobs. The keys of others are remembered when they are submitted here and when they
    finish, or found by a search.
    """

    def __init__(self, client: Client, caches: ControllerCaches) -> None:
        self._client, self._caches = client, caches
        self._remembered: OrderedDict[str, ObjectKey] = OrderedDict()  # by uid; the oldest first
        self._missing: ExpiringCache[tuple[str, str], bool] = ExpiringCache(MAX_MISSING, loop_time)  # namespace, uid
        self._searches: ExpiringCache[str, _NamespaceSearch] = ExpiringCache(MAX_SEARCHED, loop_time)  # by namespace
        self._lists = asyncio.Semaphore(MAX_LISTS)
        self._count = 0  # of jobs remembered so far, in all
        caches.jobs.on_change(self._job_changed)

    def _job_changed(self, change: ObjectChange[JobView]) -> None:
        for job in (change.old, change.new):
            if job is not None and (change.new is None or job.status.phase in FINISHED):
                self._remember(job.metadata.uid, change.key)

    def _remember(self, uid: str, key: ObjectKey) -> None:
        self._count += 1
        self._remembered[uid] = key
        self._remembered.move_to_end(uid)
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)

    async def submit(self, namespace: str, name: str, submitted: SubmittedSpec) -> VmafxJob:
        """Create a VmafxJob; the API server validates the spec."""
        meta: dict[str, Any] = {"name": name} if name else {"generateName": "job-"}
        meta["annotations"] = submitted.annotations
        body: UntypedObject = {
            "apiVersion": JOBS.api_version, "kind": JOBS.kind, "metadata": meta, "spec": submitted.spec,
        }  # fmt: skip
        try:
            created = await self._client.create(UNTYPED, body, namespace)
        except AlreadyExists as error:
            message = (
                f"a job named {name!r} exists already in namespace {namespace!r}; choose another name, or give none"
            )
            raise StatusError("ALREADY_EXISTS", message) from error
        except (Invalid, BadRequest) as error:
            raise invalid_object(error) from error
        except NotFound as error:
            raise namespace_not_found(namespace) from error
        except Forbidden as error:  # a quota or an admission policy: the caller was already authorized
            raise StatusError("FAILED_PRECONDITION", str(error)) from error
        job = msgspec.convert(created, VmafxJob)
        self._remember(job.metadata.uid, key_of(job))  # the cache may not have it yet
        return job

    def known_key(self, job_id: str, namespace: str = "") -> ObjectKey | None:
        """The key of a job, by its uid or the ID of one of its attempts, if this replica has seen the job."""
        if (job := self._caches.find_job(job_id)) is not None:
            key: ObjectKey | None = key_of(job)
        else:
            key = self._remembered.get(job_id) or self._remembered.get(uid_of(job_id))
        return key if key is not None and namespace in {"", key.namespace} else None

    async def search(self, job_id: str, namespace: str) -> ObjectKey:
        """Find a job that this replica has not seen, such as one that finished before it started, by listing all jobs.

        The lists of a namespace are read one at a time, with a pause between them. A job that is not in a list which
        was started after the call does not exist, so calls that wait share the next list.
        """
        called_at, attempt_of = loop_time(), uid_of(job_id)
        uid = attempt_of if UID.fullmatch(attempt_of) else job_id
        if not UID.fullmatch(uid) or self._missing.get((namespace, uid)):
            raise _job_not_found(job_id)
        here = self._searches_in(namespace)
        async with here.lock:
            key = self.known_key(uid, namespace)
            everywhere = self._searches_in("")
            if key is None and not any(one.answers(called_at, self._count) for one in (here, everywhere)):
                if here.last is not None:
                    await asyncio.sleep(here.last.ended + SEARCH_INTERVAL - loop_time())
                async with self._lists:
                    key = self.known_key(uid, namespace) or await self._list_until(uid, namespace, here)
        if key is None:
            self._missing.put((namespace, uid), True, loop_time() + MISSING_TTL)
            raise _job_not_found(job_id)
        return key

    def _searches_in(self, namespace: str) -> _NamespaceSearch:
        found = self._searches.get(namespace) or _NamespaceSearch()
        self._searches.put(namespace, found, loop_time() + MISSING_TTL)
        return found

    async def _list_until(self, uid: str, namespace: str, here: _NamespaceSearch) -> ObjectKey | None:
        """List jobs until the one with this uid, and remember all of them."""
        started, remembered_before = loop_time(), self._count
        async with aclosing(self._client.pages(JOB_HEADS, namespace, metadata_only=True)) as pages:
            async for page in pages:
                for job in page.items:
                    self._remember(job.metadata.uid, key_of(job))
                if uid in self._remembered:
                    return self._remembered[uid]
        here.last = _FullList(started, loop_time(), remembered_before)
        return None

    async def get(self, job_id: str, key: ObjectKey) -> VmafxJob:
        """The job with this ID, which was found under `key`."""
        try:
            job = await self._client.get(JOBS, key)
        except NotFound as error:
            raise _job_not_found(job_id) from error
        if job.metadata.uid not in {job_id, uid_of(job_id)}:  # a new job of the same name
            raise _job_not_found(job_id)
        return job

    async def cancel(self, job: VmafxJob) -> tuple[bool, str]:
        """Request cancellation; return whether the job is or will be cancelled, and a message for the caller.

        Idempotent, so that a caller without a reply can repeat the call.
        """
        if is_cancelled(job):
            return True, "the job was cancelled already"
        if job.status.phase in FINISHED:
            return False, f"the job has {job.status.phase.lower()} already; there is nothing to cancel"
        if job.spec.cancel:
            return True, "cancellation was requested already; the job is about to end"
        patch = {"metadata": {"uid": job.metadata.uid}, "spec": {"cancel": True}}
        try:
            await self._client.merge_patch(UNTYPED, key_of(job), patch)
        except (NotFound, Conflict) as error:
            raise _job_not_found(job.metadata.uid) from error
        return True, ""


def job_spec(reference: str, distorted: str, model: str, backend: str, spec_json: str) -> SubmittedSpec:
    """The spec of a VmafxJob from the fields of a request; a field given twice must have the same value."""
    spec: dict[str, Any] = {}
    if spec_json:
        if len(spec_json) > MAX_SPEC:
            raise StatusError("INVALID_ARGUMENT", f"spec is longer than {MAX_SPEC:,} bytes")
        try:
            spec = msgspec.json.decode(spec_json, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
            raise StatusError("INVALID_ARGUMENT", f"spec must be a JSON object in a string: {error}") from error
    scoring = {"reference": reference, "distorted": distorted, "model": model, "backend": backend}
    for name, value in scoring.items():
        if value and spec.setdefault(name, value) != value:
            raise StatusError("INVALID_ARGUMENT", f"scoring.{name} and {name} in spec differ; give only one of them")
    if missing := [f"scoring.{name}" for name in ("reference", "distorted") if not spec.get(name)]:
        raise StatusError(
            "INVALID_ARGUMENT",
            f"missing fields: {', '.join(missing)}; give the URI of each clip, such as file:///clips/a.mp4",
        )
    return with_uris(spec)


def _job_not_found(job_id: str) -> StatusError:
    return StatusError(
        "NOT_FOUND",
        f"no job has the id {job_id[:100]!r}: use the id from its submission, not its name; a deleted job is not found",
    )


class JobStreams:
    """Lists and streams of jobs from the API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def page(self, namespace: str, phases: Collection[str], limit: int, token: str) -> ListPage[VmafxJob]:
        """One page of the jobs in these phases, or in all; `token` is the continue token of the page before."""
        if namespace and not token and await self._is_missing(namespace):
            raise namespace_not_found(namespace)
        others = [phase for phase in get_args(Phase) if phases and phase not in phases]
        fields = ",".join(f"status.phase!={phase}" for phase in others)
        try:
            async with aclosing(self._client.pages(JOBS, namespace, fields=fields, page=limit, token=token)) as pages:
                return await anext(pages)
        except Expired as error:
            message = "the list has changed too much since its first page; start again without continue"
            raise StatusError("ABORTED", message, status=410) from error
        except BadRequest as error:
            if not token:
                raise
            message = "continue is not a token of this list; start again without it"
            raise StatusError("INVALID_ARGUMENT", message) from error

    async def watch(self, namespace: str) -> AsyncGenerator[VmafxJob]:
        """Yield all jobs, then each job that changes; if the watch expires, start again with all jobs."""
        if namespace and await self._is_missing(namespace):
            raise namespace_not_found(namespace)
        while True:
            try:
                async with aclosing(self._list_and_watch(namespace)) as jobs:
                    async for job in jobs:
                        yield job
            except Expired:
                await asyncio.sleep(1)

    async def _is_missing(self, namespace: str) -> bool:
        """Listing jobs in a missing namespace is not an error. False if the controller may not read namespaces."""
        try:
            await self._client.get(NAMESPACES, ObjectKey("", namespace))
        except NotFound:
            return True
        except Forbidden:
            return False
        return False

    async def _list_and_watch(self, namespace: str) -> AsyncGenerator[VmafxJob]:
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
