"""The process of `vmafx serve`: builds the components, serves, and stops."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from vmafx import logs
from vmafx.api.scoring import CORES_PER_JOB
from vmafx.auth.access import AccessControl, InsecureAccess, TokenAccess
from vmafx.auth.certificates import Certificates
from vmafx.auth.keys import InvalidKeys, KeyAccess
from vmafx.cores import usable_cores
from vmafx.http.address import ListenAddress
from vmafx.http.hosts import HostPolicy
from vmafx.http.limits import ServerLimits, UploadLimits
from vmafx.http.responses import ProbeRoutes, metrics_response, probe_response
from vmafx.http.server import Site, serve_http
from vmafx.kube import Client, load_config
from vmafx.kube.errors import KubeError
from vmafx.logs import log
from vmafx.runtime.role import run_role
from vmafx.scoring.engines.find import Engines
from vmafx.scoring.errors import ScoringError
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.score import Scorer
from vmafx.serving.callers import Callers
from vmafx.serving.jobs import JobRegistry
from vmafx.serving.metrics import ServingMetrics
from vmafx.serving.models import ServedModels
from vmafx.serving.page import page_routes
from vmafx.serving.results import ResultStore
from vmafx.serving.service import Limits, Parts, ScoringService
from vmafx.serving.settings import ABOUT, PROGRAM, ServeSettings
from vmafx.serving.site import ScoringSite
from vmafx.serving.store import FolderInUse, JobStore
from vmafx.settings import load

MODEL_RETRY = 15.0  # seconds between attempts to load the model
CLOSE_SECONDS = 5.0  # for the last responses
SERVER_LIMITS = ServerLimits(connections=4096, stop_seconds=CLOSE_SECONDS)
NOT_FOUND = "no such path; /openapi.json describes all paths"


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C; exit code 1 if it fails."""
    settings = load(ServeSettings, PROGRAM, ABOUT, sys.argv[1:] if arguments is None else arguments)
    logs.configure(settings.log_level, settings.log_format)
    run_role("serve", partial(run, settings), (KubeError, OSError, ScoringError, FolderInUse, InvalidKeys))


async def run(settings: ServeSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set; then jobs have some time to finish."""
    with _folder(settings) as folder:
        store = JobStore(Path(folder))
        try:
            async with _callers(settings) as callers:
                await _serve(settings, store, Path(folder), callers, stop)
        finally:
            store.close()
    log.info("stopped")


async def _serve(
    settings: ServeSettings, store: JobStore, folder: Path, callers: Callers, stop: asyncio.Event
) -> None:
    policy = _request_policy(folder)
    results = ResultStore(store.results, settings.results_size)
    models = ServedModels(settings.model, policy, MediaPolicy.from_environ(os.environ))
    metrics, limits = ServingMetrics(), _limits(settings)
    scorer = Scorer(Engines(), policy, cache=results.cache)
    service = ScoringService(Parts(scorer, policy, models, JobRegistry(store), results, metrics), limits)
    service.recover()
    uploads = UploadLimits(
        file_bytes=settings.max_upload,
        total_bytes=2 * settings.max_upload + (1 << 20),
        files=2,
        parts=3,
        folder=str(store.uploads),
        linkable=True,
    )

    def not_ready() -> str | None:
        if service.draining:
            return "the server is stopping"
        return None if models.default_info is not None else f"the model {models.default_name} is not loaded yet"

    probes: ProbeRoutes = {
        "/healthz": probe_response(lambda: None),
        "/readyz": probe_response(not_ready),
        "/metrics": metrics_response(metrics.registry),
    }
    site = Site(
        routes=[*ScoringSite(service, callers, uploads, settings.wait).routes(), *page_routes()],
        probes=probes,
        not_found=NOT_FOUND,
        hosts=HostPolicy(settings.hosts, "--hosts"),
    )
    address = settings.http_address or ListenAddress(None, settings.port)
    tls = Certificates(settings.tls_cert, settings.tls_key).for_http() if settings.tls_cert else None
    async with serve_http(address, site, tls, SERVER_LIMITS) as port:
        log.info("serving", http=port, auth=settings.auth, tls=tls is not None, model=models.default_name)
        async with _background(service, models, folder / "model"):
            await stop.wait()
            log.info("stopping: jobs have time to finish", seconds=settings.grace)
            await service.drain(settings.grace)
            service.close()
            await asyncio.sleep(0)  # requests that waited for a job answer before the server closes


@asynccontextmanager
async def _background(service: ScoringService, models: ServedModels, folder: Path) -> AsyncIterator[None]:
    """Score jobs, once the model is loaded, until the context ends."""

    async def score() -> None:
        await _load_model(models, folder)
        await service.run()

    running = asyncio.create_task(score())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})
        if not running.cancelled() and (error := running.exception()) is not None:
            raise error


async def _load_model(models: ServedModels, folder: Path) -> None:
    """Until it succeeds: a registry may be unreachable for a while, and /readyz says that the model is missing."""
    folder.mkdir(exist_ok=True, mode=0o700)
    while True:
        try:
            await models.load(folder)
        except ScoringError as error:
            log.error("cannot load the model, will retry", model=models.default_name, error=str(error))
            await asyncio.sleep(MODEL_RETRY)
        else:
            return


def _folder(settings: ServeSettings) -> "TemporaryDirectory[str] | _GivenFolder":
    if settings.data is None:
        log.warn("jobs and results do not survive a restart; set --data to a folder for them")
        return TemporaryDirectory(prefix="vmafx-serve-")
    return _GivenFolder(settings.data)


class _GivenFolder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> str:
        self._path.mkdir(parents=True, exist_ok=True)
        return str(self._path)

    def __exit__(self, *_: object) -> None:
        pass


def _request_policy(folder: Path) -> MediaPolicy:
    """What requests may name: local clips only in the folders that are allowed, never anywhere."""
    policy = MediaPolicy.for_jobs(os.environ)
    models = (policy.model_dir,) if policy.model_dir is not None else ()
    return msgspec.structs.replace(policy, roots=(*policy.roots, folder / "model", *models))


def _limits(settings: ServeSettings) -> Limits:
    cores = usable_cores()
    parallel = settings.parallel or max(1, cores // CORES_PER_JOB)
    return Limits(parallel, max(1, cores // parallel), settings.queue, settings.deadline)


@asynccontextmanager
async def _callers(settings: ServeSettings) -> AsyncIterator[Callers]:
    if settings.auth == "token":
        config = load_config(settings.kubeconfig or None)
        async with Client(config) as client:
            yield Callers(TokenAccess(client), settings.namespace or config.namespace)
        return
    access: AccessControl = InsecureAccess()
    if settings.auth == "keys":
        if settings.keys is None:
            raise InvalidKeys("--auth keys needs the file with the keys: set --keys")
        access = KeyAccess(settings.keys)
    else:
        log.warn("everybody who reaches this server may use it; see --auth")
    yield Callers(access)


if __name__ == "__main__":
    main()
