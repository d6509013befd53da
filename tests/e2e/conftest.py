"""The cluster with real nodes, for tests marked `cluster`; what happened in it is shown when one fails."""

import itertools
import subprocess
from collections.abc import Generator, Iterator

import pytest

from tests.e2e.clips import ClipServer, serve_clips
from tests.e2e.cluster import Cluster, E2EError
from tests.e2e.image import built_image
from tests.e2e.product import score_here
from tests.support.waiting import until

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def e2e_cluster() -> Iterator[Cluster]:
    with Cluster() as cluster, pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECACHEDIR", cluster.environment["KUBECACHEDIR"])
        for name in ("no_proxy", "NO_PROXY"):  # what tests ask on this machine
            patch.setenv(name, "127.0.0.1,localhost", prepend=",")
        yield cluster


@pytest.fixture(scope="session")
def product_cluster(e2e_cluster: Cluster) -> Cluster:
    """The cluster with the image of vmafx on its nodes, under the chart's default name."""
    e2e_cluster.load_image(built_image())
    return e2e_cluster


@pytest.fixture(scope="session")
def clips(e2e_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClipServer]:
    with serve_clips(e2e_cluster, tmp_path_factory.mktemp("clips")) as server:
        yield server


@pytest.fixture(scope="session")
def score(clips: ClipServer) -> float:
    """What `vmafx score` says of the clips on this machine."""
    return score_here(clips.reference, clips.distorted)


@pytest.fixture
def e2e_namespace(e2e_cluster: Cluster) -> Iterator[str]:
    """A namespace of the cluster, for one test. Afterwards its Pods are gone."""
    name = f"e2e-{next(_numbers)}"
    e2e_cluster.kubectl("create", "namespace", name)
    yield name
    e2e_cluster.kubectl("delete", "namespace", name, "--wait=false")  # the rest of it takes another 5 s
    pods = ("pods", f"--namespace={name}")
    until(lambda: e2e_cluster.get(*pods)["items"] == [], f"the Pods of {name} are gone", 120)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    arguments = getattr(item, "funcargs", {})
    product = arguments.get("product")  # of a module, with a namespace of its own
    cluster = product.cluster if product else arguments.get("e2e_cluster")
    namespace = product.namespace if product else arguments.get("e2e_namespace")
    if report.failed and cluster and namespace:
        try:
            shown = cluster.diagnose(namespace)
        except (E2EError, OSError, subprocess.TimeoutExpired) as error:
            shown = f"the cluster does not answer: {error}"
        report.sections.append(("Namespace of the test", shown))
    if report.failed and (gateway := arguments.get("gateway")):
        report.sections.append(("Gateway", gateway.logs()))
    return report
