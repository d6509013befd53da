"""An inference service behind a real gateway: no request fails during changes, and the canary receives its weight."""

import json
import re
from collections.abc import Iterator

import pytest
import yaml

from tests.e2e.clips import ClipServer
from tests.e2e.cluster import Cluster
from tests.e2e.gateway import ClusterGateway, serve_gateway
from tests.e2e.product import Product
from tests.e2e.serving import CANARY, PRIMARY, InferenceService, assert_scored, assert_split
from tests.support.project import ROOT
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PAGE = (ROOT / "docs/inference.md").read_text()
DOMAIN = "models.example.com"
FIRST_WEIGHT, WEIGHT = 50, 10  # percent of the canary. Two replicas and one would give it 33
REQUESTS, TOLERANCE = 20_000, 2.0  # percent points
PROBES, PROBES_TOLERANCE = 200, 8.0


@pytest.fixture(scope="module")
def gateway(product_cluster: Cluster) -> Iterator[ClusterGateway]:
    with serve_gateway(product_cluster) as gateway:
        allow_long_requests(product_cluster, gateway)
        yield gateway


@pytest.fixture(scope="module")
def product(product_cluster: Cluster, gateway: ClusterGateway) -> Iterator[Product]:
    product = Product(product_cluster, "routed")
    serving = {"gateway": gateway.name, "domain": DOMAIN}
    product.install(values={"deployment": {"replicaCount": 0}, "operator": {"serving": serving}})
    yield product
    product.remove()


def allow_long_requests(cluster: Cluster, gateway: ClusterGateway) -> None:
    """Apply the policy of the page, for the gateway of the test."""
    (policy,) = (
        body
        for body in map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL))
        if body["kind"] == "BackendTrafficPolicy"
    )
    namespace, _, name = gateway.name.partition("/")
    policy["metadata"]["namespace"], policy["spec"]["targetRefs"][0]["name"] = namespace, name
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(policy))


def test_a_service_scores_through_a_gateway_while_its_canary_changes(
    product: Product, gateway: ClusterGateway, clips: ClipServer, score: float
) -> None:
    service = InferenceService(product, "house", clips, gateway.address)

    def is_split(weight: float) -> bool:
        """Whether the gateway has the weight: it applies a route a little after it has accepted it."""
        probes = service.ask(PROBES)
        assert probes.failed == []
        return abs(probes.percent(CANARY) - weight) <= (PROBES_TOLERANCE if 0 < weight < 100 else 0)

    service.create(modelRef=PRIMARY, replicas=2)
    assert service.status["url"] == f"http://house.{product.namespace}.{DOMAIN}"
    until(lambda: not service.ask(PROBES).failed, "the gateway routes to the service")
    with service.scoring() as scored:
        service.change(canary={"modelRef": CANARY, "weight": FIRST_WEIGHT})
        until(lambda: is_split(FIRST_WEIGHT), "the canary receives its weight")
        service.change(canary={"weight": WEIGHT})
        until(lambda: is_split(WEIGHT), "the canary receives its new weight")
        asked = service.ask(REQUESTS)
        service.change(modelRef=CANARY, canary=None)
        until(lambda: is_split(100), "the canary's model is promoted")
        service.change(modelRef=PRIMARY)
        until(lambda: is_split(0), "the model is rolled out")
        scored.wait_for(PRIMARY)
    assert_scored(scored, score)
    assert_split(asked, REQUESTS, WEIGHT, TOLERANCE)
