"""The process of `vmafx mcp`: builds the components, serves, and stops."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path

import msgspec

from vmafx import logs
from vmafx.auth.callers import CallerPolicy, open_callers
from vmafx.auth.certificates import configured_certificates
from vmafx.auth.keys import InvalidKeys
from vmafx.folder_lock import FolderInUse
from vmafx.http.address import ListenAddress
from vmafx.http.hosts import HostPolicy
from vmafx.http.limits import ServerLimits
from vmafx.http.responses import ProbeRoutes, metrics_response, probe_response
from vmafx.http.server import Site, serve_http
from vmafx.kube import Client, load_config
from vmafx.kube.errors import KubeError
from vmafx.logs import log
from vmafx.mcp.cluster import Cluster
from vmafx.mcp.jobs import Jobs
from vmafx.mcp.metrics import McpMetrics
from vmafx.mcp.resources import Reports
from vmafx.mcp.server import McpService
from vmafx.mcp.settings import ABOUT, PROGRAM, McpSettings
from vmafx.mcp.site import McpSite
from vmafx.mcp.state import StateFolder, default_state
from vmafx.mcp.stdio import serve_stdio
from vmafx.mcp.tools import Tools
from vmafx.mcp.work import JobWork
from vmafx.runtime.role import open_files_limit, raise_descriptor_limit, run_role
from vmafx.scoring.cache import ResultCache
from vmafx.scoring.errors import ScoringError
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.score import Scorer
from vmafx.settings import load
from vmafx.tune.work_folder import WorkFolder

MAX_CONNECTIONS = 1024  # of HTTP; at most half of the files that may be open, which clips and pipes need too
EXPECTED = (KubeError, OSError, ScoringError, FolderInUse, InvalidKeys)


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until SIGTERM, Ctrl-C or the end of standard input; exit code 1 if it fails."""
    settings = load(McpSettings, PROGRAM, ABOUT, sys.argv[1:] if arguments is None else arguments)
    logs.configure(settings.log_level, settings.log_format)
    raise_descriptor_limit()
    run_role("mcp", partial(run, settings), EXPECTED)


async def run(settings: McpSettings, stop: asyncio.Event) -> None:
    """Serve until `stop` is set. Jobs that run then are continued after the next start."""
    on_stdio = settings.http_address is None
    folder = settings.state or default_state()
    with closing(StateFolder(folder, exclusive=not on_stdio)) as state:
        if state.number > 1:
            log.warn("another server uses the state; this one keeps its jobs apart", server=state.number)
        policy = request_policy(MediaPolicy.for_jobs(os.environ), state.folder, Path.cwd() if on_stdio else None)
        cache = ResultCache(state.results, settings.results_size)
        work = JobWork(
            Scorer(policy=policy, cache=cache), WorkFolder(state.encodes, settings.encodes_size), settings.parallel
        )
        metrics = McpMetrics()
        jobs = Jobs(state, work, settings.queue, settings.deadline, metrics)
        await jobs.recover()
        async with _cluster(settings, policy) as cluster:
            reports = Reports(jobs, cache)
            service = McpService(Tools(jobs, reports, settings.wait, cluster), reports, metrics, on_stdio=on_stdio)
            async with asyncio.TaskGroup() as group:
                working = group.create_task(jobs.run(settings.parallel))
                if settings.http_address is None:
                    await serve_stdio(service.server(), stop, jobs.stop)
                else:
                    await _serve_http(settings, settings.http_address, service, jobs, metrics, stop)
                await jobs.finish_cancelling()
                working.cancel()
    log.info("stopped")


async def _serve_http(
    settings: McpSettings, address: ListenAddress, service: McpService, jobs: Jobs, metrics: McpMetrics,
    stop: asyncio.Event,
) -> None:  # fmt: skip
    policy = CallerPolicy(settings.auth, settings.keys, settings.kubeconfig, settings.namespace)
    async with AsyncExitStack() as stack:
        callers = await stack.enter_async_context(open_callers(policy))
        mcp = McpSite(service.server(), callers)
        metrics.observe_sessions(lambda: len(mcp.sessions))
        await stack.enter_async_context(mcp.running())
        probes: ProbeRoutes = {
            "/healthz": probe_response(lambda: None),
            "/readyz": probe_response(lambda: "the server is stopping" if jobs.stopping else None),
            "/metrics": metrics_response(metrics.registry),
        }
        site = Site(
            routes=mcp.routes(),
            probes=probes,
            not_found="no such path; MCP clients use /mcp",
            hosts=HostPolicy(settings.hosts, "--hosts"),
        )
        certificates = configured_certificates(settings.tls_cert, settings.tls_key, auth=settings.auth)
        tls = certificates.for_http() if certificates is not None else None
        limits = ServerLimits(connections=min(MAX_CONNECTIONS, open_files_limit() // 2))
        port = await stack.enter_async_context(serve_http(address, site, tls, limits))
        log.info("serving", http=port, auth=settings.auth, tls=tls is not None)
        await stop.wait()
        log.info("stopping: jobs continue after the next start")
        jobs.stop()


def request_policy(policy: MediaPolicy, state: Path, current: Path | None) -> MediaPolicy:
    """What calls may name: local clips only in the folders that are allowed, never anywhere.

    By default these are, for a client on standard input, the current folder. Many clients start their servers in / or
    the home folder, which nobody has chosen: then there are none, as in a folder around the home folder.
    """
    roots = policy.roots
    if not roots and current is not None and not _home().is_relative_to(current.resolve()):
        roots = (current,)
    if not roots:
        log.warn("no local clip can be used; set VMAFX_MEDIA_ROOTS to the folders with clips")
    models = (policy.model_dir,) if policy.model_dir is not None else ()
    return msgspec.structs.replace(policy, roots=(*roots, *models) or (state / "no-clips",))


def _home() -> Path:
    try:
        return Path.home().resolve()
    except RuntimeError:
        return Path("/")


@asynccontextmanager
async def _cluster(settings: McpSettings, policy: MediaPolicy) -> AsyncIterator[Cluster | None]:
    if not settings.cluster:
        yield None
        return
    config = load_config(settings.kubeconfig or None)
    async with Client(config) as client:
        yield Cluster(client, settings.namespace or config.namespace, policy)


if __name__ == "__main__":
    main()
