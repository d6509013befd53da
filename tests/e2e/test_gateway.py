"""A real gateway, Envoy Gateway with Envoy, splits the requests of an inference service by the canary's weight."""

import os
import subprocess
import sys

import msgspec
import pytest

from tests.support.gateway.trial import FIRST_WEIGHT, REQUESTS, SECOND_WEIGHT, TrialResult, fetch_binaries
from tests.support.network_namespace import isolation
from tests.support.project import ROOT

pytestmark = pytest.mark.timeout(900)  # building Envoy Gateway takes 5 to 10 minutes, once
TOLERANCE = 2.0  # points; a random split stays within five standard deviations


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> TrialResult:
    folder = tmp_path_factory.mktemp("trial")
    prefix = isolation()
    if prefix is None:
        pytest.fail("this machine does not allow network namespaces, which the trial needs (see unshare(1))")
    fetch_binaries()
    command = [*prefix, sys.executable, "-m", "tests.support.gateway.trial", str(folder / "out.json")]
    environment = {**os.environ, "TMPDIR": str(folder)}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert ended.returncode == 0, ended.stderr
    assert [path.name for path in folder.iterdir()] == ["out.json"]
    return msgspec.json.decode((folder / "out.json").read_bytes(), type=TrialResult)


def test_requests_are_split_by_weight(result: TrialResult) -> None:
    for counts, weight in ((result.first, FIRST_WEIGHT), (result.second, SECOND_WEIGHT)):
        assert counts.total == REQUESTS
        assert counts.failed == {}
        assert counts.percent("canary") == pytest.approx(weight, abs=TOLERANCE)


def test_no_request_fails_while_the_canary_changes(result: TrialResult) -> None:
    assert {what: counts.failed for what, counts in result.changes.items()} == {
        "canary added": {},
        "weight raised": {},
        "canary promoted": {},
        "canary added again": {},
        "canary aborted": {},
    }
    for counts in result.changes.values():
        assert counts.tracks.keys() == {"primary", "canary"}


def test_the_status_has_the_url_at_the_gateway(result: TrialResult) -> None:
    assert result.url == "http://speech.models.models.example.com"
