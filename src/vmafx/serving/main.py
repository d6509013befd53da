"""The process of `vmafx serve`: builds the components, serves, and stops."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from vmafx import logs
from vmafx.api.scoring import CORES_PER_JOB, MAX_THREADS
from vmafx.auth.callers import CallerPolicy, Callers, open_callers
from vmafx.auth.certificates import Certificates, configured_certificates
from vmafx.auth.keys import InvalidKeys
from vmafx.cores import usable_cores
from vmafx.folder_lock import FolderInUse
from vmafx.http.address import ListenAddress
from vmafx.http.hosts import HostPolicy
from vmafx.http.limits import ServerLimits, UploadLimits
from vmafx.http.responses import JSON, ProbeRoutes, metrics_response, probe_response, static_response
from vmafx.http.server import Site, serve_http
from vmafx.kube.errors import KubeError
from vmafx.logs import log
from vmafx.rpc.middleware import CallMetrics
from vmafx.rpc.server import serve_grpc
from vmafx.runtime.role import open_files_limit, raise_descriptor_limit, run_role
from vmafx.scoring.engines.find import Engines
from vmafx.scoring.errors import ScoringError
from vmafx.scoring.frame_stream import FrameScorer
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.score import Scorer
from vmafx.serving import openapi
from vmafx.serving.grpc_service import SCORING, ScoringServicer
from vmafx.serving.jobs import JobRegistry
from vmafx.serving.metrics import ServingMetrics
from vmafx.serving.models import ServedModels
from vmafx.serving.page import page_routes
from vmafx.serving.results import ResultStore
from vmafx.serving.service import ScoringService, ServiceLimits, ServiceParts
from vmafx.serving.settings import ABOUT, PROGRAM, ServeSettings
from vmafx.serving.site import ScoringSite
from vmafx.serving.store import JobStore
from vmafx.serving.views import encode
from vmafx.settings import load
from vmafx.tasks import in_thread

MODEL_RETRY = 15.0  # seconds between attempts to load the model
CLOSE_SECONDS = 5.0  # for the last replies of gRPC calls
MAX_CONNECTIONS = 4096  # of HTTP; at most half of the files that may be open, which clips and pipes need too


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C; exit code 1 if it fails."""
    settings = load(ServeSettings, PROGRAM, ABOUT, sys.argv[1:] if arguments is None else arguments)
    logs.configure(settings.log_level, settings.log_format)
    raise_descriptor_limit()
    run_role("serve", partial(run, settings), (KubeError, OSError, ScoringError, FolderInUse, InvalidKeys))


async def run(settings: ServeSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set; then jobs have some time to finish."""
    policy = CallerPolicy(settings.auth, settings.keys, settings.kubeconfig, settings.namespace)
    with _data_folder(settings) as folder, closing(JobStore(folder)) as store:
        async with open_callers(policy) as callers:
            await _serve(settings, store, folder, callers, stop)
    log.info("stopped")


async def _serve(settings: ServeSettings, store: JobStore, folder: Path, callers: Callers, stop: asyncio.Event) -> None:
    engines = Engines(default=settings.backend)
    engines.check(settings.backend)  # else every request would be refused
    policy = _request_policy(folder)
    models = ServedModels(settings.model, policy, _model_policy())
    results = ResultStore(store.results, settings.results_size, models)
    jobs, metrics = JobRegistry(store), ServingMetrics()
    scorer = Scorer(engines, policy, cache=results.cache)
    parts = ServiceParts(scorer, policy, models, jobs, results, metrics, durable=settings.data is not None)
    service = ScoringService(parts, _limits(settings))
    await service.recover()
    await in_thread(partial((folder / "model").mkdir, exist_ok=True, mode=0o700))

    def not_ready() -> str | None:
        if service.draining:
            return "the server is stopping"
        return None if models.default_info is not None else f"the model {models.default_name} is not loaded yet"

    document = static_response(JSON, encode(openapi.document()))
    probes: ProbeRoutes = {
        "/healthz": probe_response(lambda: None),
        "/readyz": probe_response(not_ready),
        "/metrics": metrics_response(metrics.registry),
        "/openapi.json": lambda: document,
    }
    scoring_site = ScoringSite(service, callers, _upload_limits(settings, store), settings.wait)
    site = Site(
        routes=[*scoring_site.routes(), *page_routes()],
        probes=probes,
        not_found="no such path; /openapi.json describes all paths",
        hosts=HostPolicy((*settings.hosts, *settings.gateway_host), "--hosts"),
    )
    address, certificates = (
        settings.http_address or ListenAddress(None, settings.port),
        configured_certificates(settings.tls_cert, settings.tls_key, auth=settings.auth),
    )
    tls = certificates.for_http() if certificates is not None else None
    limits = ServerLimits(connections=min(MAX_CONNECTIONS, open_files_limit() // 2))
    servicer = ScoringServicer(service, callers, FrameScorer(engines, policy), not_ready)
    async with (
        serve_http(address, site, tls, limits) as port,
        _grpc(settings, certificates, servicer, callers, metrics) as grpc_port,
    ):
        log.info(
            "serving", http=port, grpc=grpc_port, auth=settings.auth, tls=tls is not None, model=models.default_name
        )
        async with asyncio.TaskGroup() as group:
            scoring = group.create_task(_score_jobs(service, models, folder / "model"))
            await stop.wait()
            log.info("stopping: jobs have time to finish", seconds=settings.grace)
            await service.drain(settings.grace)
            await service.close()
            scoring.cancel()
    await jobs.close()


async def _score_jobs(service: ScoringService, models: ServedModels, folder: Path) -> None:
    """Load the model, then score jobs until cancelled.

    It retries for ever: a registry may be unreachable for a while, and /readyz says that the model is missing.
    """
    while models.default_info is None:
        try:
            await models.load(folder)
        except ScoringError as error:
            log.error("cannot load the model, will retry", model=models.default_name, error=str(error))
            await asyncio.sleep(MODEL_RETRY)
    await service.run()


@contextmanager
def _data_folder(settings: ServeSettings) -> Iterator[Path]:
    if settings.data is not None:
        settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
        yield settings.data
        return
    log.warn("jobs and results do not survive a restart; set --data to a folder for them")
    with TemporaryDirectory(prefix="vmafx-serve-") as folder:
        yield Path(folder)


def _request_policy(folder: Path) -> MediaPolicy:
    """What requests may name: local clips only in the folders that are allowed, never anywhere."""
    policy = MediaPolicy.for_jobs(os.environ)
    models = (policy.model_dir,) if policy.model_dir is not None else ()
    return msgspec.structs.replace(policy, roots=(*policy.roots, folder / "model", *models))


def _model_policy() -> MediaPolicy:
    """For the model of the server: whoever starts it may read any file, and reach any address."""
    return msgspec.structs.replace(MediaPolicy.from_environ(os.environ), roots=(), private=True)


def _limits(settings: ServeSettings) -> ServiceLimits:
    cores = usable_cores()
    parallel = settings.parallel or max(1, cores // CORES_PER_JOB)
    threads = min(max(1, cores // parallel), MAX_THREADS)
    return ServiceLimits(parallel, threads, settings.queue, settings.deadline)


def _upload_limits(settings: ServeSettings, store: JobStore) -> UploadLimits:
    return UploadLimits(
        file_bytes=settings.max_upload,
        total_bytes=2 * settings.max_upload + (1 << 20),
        files=2,
        parts=3,
        folder=str(store.uploads),
        linkable=True,
    )


@asynccontextmanager
async def _grpc(
    settings: ServeSettings,
    certificates: Certificates | None,
    servicer: ScoringServicer,
    callers: Callers,
    metrics: ServingMetrics,
) -> AsyncIterator[int]:
    """Serve gRPC until the context ends; yields the port, 0 if it is disabled."""
    if settings.grpc_address is None:
        yield 0
        return
    credentials = certificates.for_grpc() if certificates is not None else None
    measured = CallMetrics(SCORING, metrics.registry).wrap(servicer)
    async with serve_grpc(
        settings.grpc_address, credentials, SCORING, measured, callers.access, metrics.registry, CLOSE_SECONDS
    ) as port:
        yield port


if __name__ == "__main__":
    main()
