"""Figures in a real Prometheus Pushgateway."""

import base64
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.pushgateway import Pushgateway, running_pushgateway
from tests.support.tune import Tune, encodes
from tests.support.waiting import eventually
from tests.support.webserver import Answer, WebServer, hangs_up, says

ARGUMENTS = ("--encoders", "libx264:ultrafast", "--json")


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Pushgateway]:
    async with running_pushgateway(tmp_path) as gateway:
        yield gateway


def pushed(gateway: Pushgateway, name: str) -> dict[tuple[str, str, str], float]:
    """A figure by source, preset and quality."""
    return {
        (one.labels["source"], one.labels["preset"], one.labels["quality"]): one.value
        for one in gateway.figures()
        if one.name == name
    }


async def test_figures_arrive_and_are_replaced_by_those_of_the_next_push(
    gateway: Pushgateway, tune: Tune, source: Path
) -> None:
    result = encodes(tune.json(source, *ARGUMENTS, "--quality", "20,40", "--pushgateway", gateway.url))
    keys = {(str(source), "ultrafast", quality): result[f"libx264:ultrafast {quality}"] for quality in ("20", "40")}
    for figure, field in (("score", "score"), ("bitrate", "bitrate"), ("encode_seconds", "seconds")):
        found = pushed(gateway, f"vmaf_tune_{figure}")
        assert found == pytest.approx({key: encode[field] for key, encode in keys.items()})
    (labels,) = {(one.labels["job"], one.labels["encoder"], one.labels["height"]) for one in gateway.figures()}
    assert labels == ("vmaf-tune", "libx264", "144")

    tune.json(source, *ARGUMENTS, "--quality", "30", environment={"VMAFX_PUSHGATEWAY": gateway.url})
    assert list(pushed(gateway, "vmaf_tune_score")) == [(str(source), "ultrafast", "30")]

    other = tune.folder / 'café & "clip" <1>.mkv'
    other.write_bytes(source.read_bytes())
    tune.json(other, *ARGUMENTS, "--quality", "30", "--pushgateway", f"{gateway.url}/")
    await eventually(lambda: len(pushed(gateway, "vmaf_tune_score")) == 2, "sources are kept apart")
    assert (str(other), "ultrafast", "30") in pushed(gateway, "vmaf_tune_score")


def test_a_gateway_that_does_not_answer_is_named_and_the_result_is_printed(tune: Tune, source: Path) -> None:
    with socket.socket() as closed:  # bound, but nothing listens
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        done = tune.compare(source, *ARGUMENTS, "--quality", "30", "--pushgateway", url, "--report", "a.csv")
    assert done.returncode == 3
    assert done.stderr == ("wrote a.csv\nerror: cannot push to the Pushgateway: [Errno 111] Connection refused\n")
    assert '"score": ' in done.stdout


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (says(400, b"pushed metrics are invalid"), "error: cannot push to the Pushgateway: Whatever"),
        (hangs_up(), "error: cannot push to the Pushgateway: "),
    ],
)
async def test_a_gateway_that_refuses_is_named(answer: Answer, message: str, tune: Tune, source: Path) -> None:
    async with WebServer() as server:
        url = server.serve("/", answer)
        path = f"/metrics/job/vmaf-tune/source@base64/{encoded(str(source))}"
        server.serve(path, answer)
        arguments = (*ARGUMENTS, "--quality", "30", "--pushgateway", url)
        async with tune.comparing(source, *arguments) as process:
            out, err = await process.communicate()
    assert process.returncode == 3
    assert err.decode().startswith(message)
    assert b"Traceback" not in err
    assert b'"score": ' in out


def encoded(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


def test_a_url_that_is_none_is_refused(tune: Tune, source: Path) -> None:
    done = tune.compare(source, *ARGUMENTS, "--quality", "30", "--pushgateway", "http://[::1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: options: --pushgateway is not a URL: ")
    assert tune.kept() == {}, "before anything was encoded"
