"""The HTTP routes of `vmafx serve`: requests to score, jobs, results, models."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing

from vmafx.auth.callers import Callers, ServedCaller
from vmafx.auth.credentials import CallerCredentials, from_http
from vmafx.auth.fair_limit import FairLimit
from vmafx.http.errors import StatusError
from vmafx.http.limits import UploadLimits
from vmafx.http.lists import list_query, single_parameter
from vmafx.http.request import HttpRequest
from vmafx.http.responses import (
    TEXT,
    AnyResponse,
    EventStream,
    JsonStream,
    Response,
    ServerEvent,
    attachment,
    json_response,
)
from vmafx.http.server import HttpRoute
from vmafx.serving.job import ServedJob
from vmafx.serving.page import sign_in_response
from vmafx.serving.request import FORM, media_type, receive
from vmafx.serving.results import ChartFormat
from vmafx.serving.service import ScoringService
from vmafx.serving.settings import MAX_WAIT
from vmafx.serving.views import ServedJobList, encode, job_path, job_view

MAX_BODIES = 256  # requests whose body is being received
MAX_STREAMS = 256
MAX_PAGES = 16  # rendered reports in memory
PICTURE_WAIT = 10.0  # seconds that a report waits for pictures that are being taken
CANCEL_WAIT = 10.0  # seconds for the processes of a job to end
EVENT_INTERVAL = 0.2  # seconds between two events of a job, at least
KEY = r"{key:[0-9a-f]{64}}"
JOB = r"{id:[0-9a-f]{32}}"
COOKIE = "vmafx-key"
REPORT_TYPES = {
    "html": "text/html; charset=utf-8",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
}
CHARTS: dict[str, ChartFormat] = {"svg": "svg", "png": "png"}
# The page itself has a policy for its scripts and styles.
REPORT_HEADERS = {"Content-Security-Policy": "frame-ancestors 'none'", "Referrer-Policy": "no-referrer"}


class ScoringSite:
    """The handlers of the routes. `wait` is how long a request waits for its score, if it does not say."""

    def __init__(self, service: ScoringService, callers: Callers, uploads: UploadLimits, wait: float) -> None:
        self._service, self._callers, self._uploads, self._wait = service, callers, uploads, wait
        self._bodies = FairLimit(MAX_BODIES, "requests with a body")
        self._streams = FairLimit(MAX_STREAMS, "streams")
        self._pages: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._rendering = asyncio.Semaphore(1)  # it takes the interpreter's lock for a second

    def routes(self) -> list[HttpRoute]:
        return [
            HttpRoute("POST", "/v1/score", self._score),
            HttpRoute("GET", "/v1/jobs", self._list_jobs),
            HttpRoute("GET", f"/v1/jobs/{JOB}", self._get_job),
            HttpRoute("GET", f"/v1/jobs/{JOB}/events", self._job_events),
            HttpRoute("POST", f"/v1/jobs/{JOB}/cancel", self._cancel_job),
            HttpRoute("GET", f"/v1/results/{KEY}", self._get_result),
            HttpRoute("GET", f"/v1/results/{KEY}/report.{{format:{'|'.join(REPORT_TYPES)}}}", self._get_report),
            HttpRoute("GET", f"/results/{KEY}", self._get_page, linkable=True),
            HttpRoute("GET", "/v1/models", self._list_models),
            HttpRoute("POST", "/v1/session", self._start_session),
            HttpRoute("DELETE", "/v1/session", self._end_session),
        ]

    async def _identify(self, request: HttpRequest) -> ServedCaller:
        return await self._callers.identify(_credentials(request), f"{request.method} {request.path}")

    async def _score(self, request: HttpRequest) -> Response:
        caller, wait = await self._identify(request), _preferred_wait(request, self._wait)
        job: ServedJob | None = None
        body = b""
        try:
            with self._bodies.hold(caller.share, caller.owner):
                if media_type(request) == FORM:
                    self._service.check_room(caller)  # before the clips are sent
                elif (answer := self._service.repeated_answer(body := await request.json_body())) is not None:
                    return json_response(answer)
                async with receive(request, self._uploads) as received:
                    if (answer := await self._service.known_answer(received.spec, received.files, body)) is not None:
                        return json_response(answer)
                    job = self._service.submit(received.spec, caller, received.files)
            request.extend_deadline(wait)
            await self._service.wait(job, wait)
            if not job.record.is_finished:
                request.extend_deadline(MAX_WAIT)  # to write large clips to the disk
                await self._service.keep(job)
        except asyncio.CancelledError:  # the client is gone, and does not know the job
            if job is not None:
                self._service.cancel(job)
            raise
        return json_response(await self._service.answer(job)) if job.record.is_finished else self._accepted(job)

    def _accepted(self, job: ServedJob) -> Response:
        view = job_view(job, self._service)
        seconds = math.ceil(min(max(view.expectedStartSeconds or 1, 1), MAX_WAIT))
        headers = {"Location": job_path(job.id), "Retry-After": str(seconds)}
        return json_response(encode(view), 202, headers)

    async def _list_jobs(self, request: HttpRequest) -> AnyResponse:
        caller, query = await self._identify(request), list_query(request, streams=False)
        if query.watch:
            return JsonStream(self._watched(caller))
        jobs = self._service.jobs.of(caller.owner)
        first = 0
        if query.token:
            ids = [job.id for job in jobs]
            if query.token not in ids:
                message = "the job at which the list was continued is gone; start again without `continue`"
                raise StatusError("FAILED_PRECONDITION", message, status=410)
            first = ids.index(query.token) + 1
        page = jobs[first : first + query.limit]
        token = page[-1].id if first + query.limit < len(jobs) else ""
        return json_response(encode(ServedJobList([job_view(job, self._service) for job in page], token)))

    async def _watched(self, caller: ServedCaller) -> AsyncGenerator[bytes]:
        with self._streams.hold(caller.share, caller.owner):
            async with aclosing(self._service.jobs.watch(caller.owner)) as jobs:
                async for job in jobs:
                    yield encode(job_view(job, self._service))

    async def _job(self, request: HttpRequest) -> ServedJob:
        caller = await self._identify(request)
        return self._service.jobs.get(request.parameters["id"], caller.owner)

    async def _get_job(self, request: HttpRequest) -> Response:
        job, wait = await self._job(request), _seconds(request.query.get("wait", "0"))
        request.extend_deadline(wait)
        await self._service.wait(job, wait)
        return json_response(encode(job_view(job, self._service)))

    async def _job_events(self, request: HttpRequest) -> EventStream:
        caller = await self._identify(request)
        job = self._service.jobs.get(request.parameters["id"], caller.owner)
        return EventStream(self._events(job, caller))

    async def _events(self, job: ServedJob, caller: ServedCaller) -> AsyncGenerator[ServerEvent]:
        """The job at once and after each change, the last time when it has finished."""
        with self._streams.hold(caller.share, caller.owner):
            while True:
                seen, finished = job.version, job.record.is_finished
                yield ServerEvent(encode(job_view(job, self._service)), "done" if finished else "job", str(seen))
                if finished:
                    return
                await asyncio.sleep(EVENT_INTERVAL)
                await job.changed(seen)

    async def _cancel_job(self, request: HttpRequest) -> Response:
        job = await self._job(request)
        self._service.cancel(job)
        request.extend_deadline(CANCEL_WAIT)
        await self._service.wait(job, CANCEL_WAIT)
        return json_response(encode(job_view(job, self._service)))

    async def _get_result(self, request: HttpRequest) -> Response:
        await self._identify(request)
        return json_response(await self._service.results.answer(request.parameters["key"]))

    async def _get_report(self, request: HttpRequest) -> Response:
        await self._identify(request)
        key, kind = request.parameters["key"], request.parameters["format"]
        feature = single_parameter(request, "feature")
        if (chart := CHARTS.get(kind)) is not None:
            content = await self._draw(key, "vmaf" if feature is None else feature, chart)
        elif "feature" in request.query:
            raise StatusError("INVALID_ARGUMENT", "feature is for curves, which are report.svg and report.png")
        else:
            content = await self._render(request, key, kind)
        name = f"{feature or 'vmaf'}-{key[:12]}.{kind}"
        return Response(200, REPORT_TYPES[kind], content, {**REPORT_HEADERS, **attachment(name)})

    async def _draw(self, key: str, feature: str, kind: ChartFormat) -> bytes:
        async with self._rendering:
            return await self._service.results.chart(key, feature, kind)

    async def _get_page(self, request: HttpRequest) -> Response:
        key = request.parameters["key"]
        try:
            await self._identify(request)
        except StatusError as error:
            if error.code == "UNAUTHENTICATED" and "text/html" in request.headers.get("Accept", ""):
                return sign_in_response(key)
            raise
        return Response(200, REPORT_TYPES["html"], await self._render(request, key, "html"), REPORT_HEADERS)

    async def _render(self, request: HttpRequest, key: str, kind: str) -> bytes:
        if kind != "html":
            async with self._rendering:
                return await self._service.results.rendered(key, f"report.{kind}")
        request.extend_deadline(PICTURE_WAIT)
        taken = await self._service.results.wait_for_pictures(key, PICTURE_WAIT)
        pictures = await self._service.results.pictures(key) or (() if taken else None)
        version = (key, "" if pictures is None else str(len(pictures)))
        if version not in self._pages:
            async with self._rendering:
                if version not in self._pages:
                    self._pages[version] = await self._service.results.rendered(key, "report.html", pictures)
            if len(self._pages) > MAX_PAGES:
                self._pages.popitem(last=False)
        return self._pages[version]

    async def _list_models(self, request: HttpRequest) -> Response:
        await self._identify(request)
        return json_response(encode(self._service.models.listed()))

    async def _start_session(self, request: HttpRequest) -> Response:
        """Remember the credentials in a cookie, for pages that a browser opens by their address.

        Other sites may link to such a page, hence Lax; the server rejects all other requests from other sites.
        """
        credentials = from_http(request)
        await self._callers.identify(credentials, "POST /v1/session")
        return _session(request, credentials.token)

    async def _end_session(self, request: HttpRequest) -> Response:
        return _session(request, "", "; Max-Age=0")


def _session(request: HttpRequest, token: str, more: str = "") -> Response:
    secure = "; Secure" if request.is_secure else ""
    cookie = f"{COOKIE}={token}; HttpOnly; SameSite=Lax; Path=/{secure}{more}"
    return Response(204, TEXT, b"", {"Set-Cookie": cookie})


def _credentials(request: HttpRequest) -> CallerCredentials:
    """From the Authorization header, or the cookie of a session."""
    credentials = from_http(request)
    if credentials.token or credentials.user or "Cookie" not in request.headers:
        return credentials
    return credentials._replace(token=request.cookies.get(COOKIE, ""))


def _preferred_wait(request: HttpRequest, default: float) -> float:
    """Seconds to wait for the score, by the Prefer header (RFC 7240). A preference that is not known is ignored."""
    preferences: dict[str, str] = {}
    if "Prefer" not in request.headers:
        return default
    for preference in ",".join(request.headers.getall("Prefer", [])).split(","):
        name, _, value = preference.partition(";")[0].partition("=")
        preferences.setdefault(name.strip().lower(), value.strip().strip('"'))  # the first counts
    wait = preferences.get("wait", "")
    if wait.isascii() and wait.isdecimal() and len(wait) <= 9:
        return min(int(wait), MAX_WAIT)
    return 0 if "respond-async" in preferences else default


def _seconds(text: str) -> float:
    if not text.isascii() or not text.isdecimal() or len(text) > 9:
        raise StatusError("INVALID_ARGUMENT", f"wait must be a number of seconds, up to {MAX_WAIT}")
    return min(int(text), MAX_WAIT)
