"""One real control plane for all tests, and a namespace for each test."""

import io
import itertools
import json
import logging
import os
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings
from prometheus_client import CollectorRegistry

from tests.support.default_signals import default_signals
from tests.support.leftovers import end_processes_in
from vmafx import logs
from vmafx.devcluster import ClusterOptions, DevCluster, crds, tools
from vmafx.devcluster.progress import PlainProgress
from vmafx.kube import NAMESPACES, Client, load_config
from vmafx.kube.metrics import ClientMetrics

# Deterministic by default; HYPOTHESIS_PROFILE=explore searches for new cases.
settings.register_profile("default", derandomize=True, max_examples=60, deadline=None)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in a trainer; read when numpy is imported
default_signals()
collect_ignore = [] if find_spec("torch") else ["gpu"]  # the tests of `make test-gpu`
pytest_plugins = ["tests.support.hang_timeout"]

Logged = Callable[[str, str], list[tuple[str, dict[str, object]]]]
Kubectl = Callable[..., "subprocess.CompletedProcess[str]"]
_numbers = itertools.count()


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The first fixture, so that it checks after all others have ended."""
    yield
    left = end_processes_in(tmp_path_factory.getbasetemp(), within=30.0)
    assert left == [], "tests left processes, which were killed"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with DevCluster(tmp_path_factory.mktemp("state") / "tests", ClusterOptions(tethered=True)) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture(scope="session")
async def client(cluster: DevCluster, registry: CollectorRegistry) -> AsyncIterator[Client]:
    """A client with administrator rights; the CRDs are installed."""
    async with Client(load_config(cluster.kubeconfig), ClientMetrics(registry)) as client:
        await crds.install_crds(client)
        yield client


@pytest.fixture
async def namespace(client: Client) -> str:
    return await _make_namespace(client)


@pytest.fixture
async def other_namespace(client: Client) -> str:
    return await _make_namespace(client)


async def _make_namespace(client: Client) -> str:
    name = f"test-{next(_numbers)}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return name


@pytest.fixture
def logged() -> Iterator[Logged]:
    """Find log messages of this process by the value of a field; returns messages and their other fields."""
    root, out = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers[:], root.level
    logs.configure("info", "json", out)

    def about(field: str, value: str) -> list[tuple[str, dict[str, object]]]:
        lines = [json.loads(line) for line in out.getvalue().splitlines()]
        rest = {"time", "level", "msg", field}
        return [
            (line["msg"], {name: one for name, one in line.items() if name not in rest})
            for line in lines
            if line.get(field) == value
        ]

    yield about
    logs.configure("info", "console")
    root.handlers, root.level = handlers, level


@pytest.fixture(scope="session")
def kubectl_path() -> Path:
    return tools.kubectl(PlainProgress())


@pytest.fixture
def kubectl(cluster: DevCluster, namespace: str, kubectl_path: Path) -> Kubectl:
    """Run kubectl in the namespace of the test."""

    def run(*arguments: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        command = [str(kubectl_path), "--kubeconfig", str(cluster.kubeconfig), "--namespace", namespace, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=180, check=False)

    return run
