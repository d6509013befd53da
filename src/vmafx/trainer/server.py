"""What a trainer serves: samples and human scores from the controller and the operator, its status, probes, metrics."""

import errno
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from prometheus_client import CollectorRegistry

from vmafx.http.errors import StatusError
from vmafx.http.limits import ServerLimits
from vmafx.http.request import HttpRequest
from vmafx.http.responses import ProbeRoutes, Response, json_response, metrics_response, probe_response
from vmafx.http.server import HttpRoute, Site
from vmafx.training.address import LABELS_PATH, SAMPLES_PATH
from vmafx.training.exclusion import NodeExcluded
from vmafx.training.samples import MAX_BATCH_BYTES, HumanScore, InvalidSamples, SamplePush

LIMITS = ServerLimits(body_bytes=MAX_BATCH_BYTES + 4096)
T = TypeVar("T")


class TrainerSite:
    """The routes of a trainer. `authorize` raises StatusError for a caller that may not send samples."""

    def __init__(
        self,
        accept: Callable[[SamplePush], Awaitable[str]],
        add_scores: Callable[[list[HumanScore]], Awaitable[int]],
        authorize: Callable[[HttpRequest], None],
    ) -> None:
        self._accept, self._add_scores, self._authorize = accept, add_scores, authorize

    def site(
        self,
        status: Callable[[], bytes],
        not_ready: Callable[[], str | None],
        not_healthy: Callable[[], str | None],
        registry: CollectorRegistry,
    ) -> Site:
        probes: ProbeRoutes = {
            "/status": lambda: json_response(status()),
            "/healthz": probe_response(not_healthy),
            "/readyz": probe_response(not_ready),
            "/metrics": metrics_response(registry),
        }
        routes = (
            HttpRoute("POST", SAMPLES_PATH, self._samples),
            HttpRoute("POST", LABELS_PATH, self._labels),
        )
        return Site(routes=routes, probes=probes, not_found="no such path; the status is at /status")

    async def _samples(self, request: HttpRequest) -> Response:
        """200 once the samples are on disk; 400 if they will never be accepted; 503 if the sender should retry."""
        self._authorize(request)
        push = await _message(request, SamplePush)
        try:
            result = await self._accept(push)
        except InvalidSamples as error:
            raise StatusError("INVALID_ARGUMENT", str(error)) from error
        except NodeExcluded as error:
            raise StatusError("RESOURCE_EXHAUSTED", str(error)) from error
        except OSError as error:
            raise _disk_error(error) from error
        return json_response(msgspec.json.encode({"result": result}))

    async def _labels(self, request: HttpRequest) -> Response:
        self._authorize(request)
        scores = await _message(request, list[HumanScore])
        try:
            added = await self._add_scores(scores)
        except InvalidSamples as error:
            raise StatusError("INVALID_ARGUMENT", str(error)) from error
        except OSError as error:
            raise _disk_error(error) from error
        return json_response(msgspec.json.encode({"added": added}))


async def _message(request: HttpRequest, kind: type[T]) -> T:
    """The message in the body."""
    try:
        return msgspec.msgpack.decode(await request.content(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StatusError("INVALID_ARGUMENT", f"the body cannot be decoded: {error}") from error


def _disk_error(error: OSError) -> StatusError:
    full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    advice = "make spec.storage.size larger" if full else "see the trainer's log"
    return StatusError("UNAVAILABLE", f"cannot write to the volume: {error.strerror}; {advice}")
