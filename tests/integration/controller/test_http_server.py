"""The controller's HTTP API over a real socket: requests, replies and errors."""

import json
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any, get_args

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yarl import URL

from tests.support.problems import checked_members, checked_problem
from tests.support.scripted_controller import ANSWERS, ScriptedController
from vmafx.auth.certificates import Certificates
from vmafx.auth.credentials import CallerCredentials
from vmafx.controller import http_server
from vmafx.devcluster.pki import Authority
from vmafx.http import server
from vmafx.http.address import ListenAddress
from vmafx.http.errors import Code, StatusError
from vmafx.http.responses import ProbeRoutes, probe_response
from vmafx.kube.errors import ConfigError, Unreachable
from vmafx.wire import controller_pb2 as wire

HERE = ListenAddress("127.0.0.1", 0)
PROBES: ProbeRoutes = {"/healthz": probe_response(lambda: None), "/readyz": probe_response(lambda: "no cache")}
JSON = {"Content-Type": "application/json"}


class Site:
    def __init__(self, calls: ScriptedController, http: aiohttp.ClientSession) -> None:
        self.calls, self.http = calls, http

    async def request(self, method: str, path: str | URL, body: Any = None, **options: Any) -> tuple[int, Any]:
        """Return the status, and the body as JSON; of a problem, the code and the message."""
        if body is not None:
            options = {"data": body if isinstance(body, bytes) else json.dumps(body), "headers": JSON} | options
        async with self.http.request(method, path, **options) as response:
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            reply = json.loads(await response.read())
            if response.status >= 400:
                return response.status, checked_problem(response, reply)
            assert response.headers["Content-Type"] == "application/json"
            return response.status, reply


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    calls = ScriptedController()
    async with (
        server.serve_http(HERE, http_server.site(calls, PROBES)) as port,  # type: ignore[arg-type]
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        yield Site(calls, http)


SESSION = {"sessionToken": "s"}
CALLS = [
    ("/v1/jobs", {"scoring": {"reference": "a"}, "name": "n"}, "SubmitJob",
     wire.SubmitJobRequest(scoring=wire.ScoringParams(reference="a"), name="n"), 201,
     {"jobId": "u-1", "namespace": "video", "name": "vj-1"}),
    ("/v1/jobs/u-1/cancel", None, "CancelJob", wire.CancelJobRequest(job_id="u-1"), 200,
     {"ok": False, "message": "it is over"}),
    ("/v1/jobs/u-1/cancel", {"jobId": "u-1", "namespace": "video"}, "CancelJob",
     wire.CancelJobRequest(job_id="u-1", namespace="video"), 200,
     {"ok": False, "message": "it is over"}),
    ("/v1/nodes", {"name": "n", "capability": {"gpu_vendor": "cpu"}, "labels": {"a": "b"}}, "RegisterNode",
     wire.RegisterNodeRequest(name="n", capability=wire.NodeCapability(gpu_vendor="cpu"), labels={"a": "b"}), 200,
     {"nodeId": "video/gpu-1", "sessionToken": "s", "capacity": 0, "message": ""}),
    ("/v1/nodes/video/gpu-1/heartbeat", {**SESSION, "running_job_ids": {}}, "Heartbeat",
     wire.HeartbeatRequest(node_id="video/gpu-1", session_token="s", running_job_ids=wire.RunningJobs()), 200,
     {"ok": True, "stopJobIds": ["u-1-0"], "superseded": False, "capacity": 0}),
    ("/v1/nodes/old/results", {"jobId": "j", "final": True, "score": 93.5, "features": {"a": 1}}, "ReportResult",
     wire.ReportResultRequest(node_id="old", job_id="j", final=True, score=93.5, features={"a": 1}), 200, {"ok": True}),
    ("/v1/samples", {"samplesToken": "t", "samples": "AP8="}, "PushSamples",
     wire.PushSamplesRequest(samples_token="t", samples=b"\x00\xff"), 200, {"result": "RETRY", "message": "later"}),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "call", "message", "status", "reply"), CALLS)
async def test_a_post_is_a_call(
    site: Site, path: str, body: Any, call: str, message: Any, status: int, reply: Any
) -> None:
    assert await site.request("POST", path, body) == (status, reply)
    assert site.calls.received == [(call, message, CallerCredentials(peer="127.0.0.1"))]


async def test_a_job_includes_empty_fields(site: Site) -> None:
    status, reply = await site.request("GET", "/v1/jobs/u-1?namespace=video")
    assert site.calls.received[0].request == wire.GetJobRequest(job_id="u-1", namespace="video")
    assert status == 200
    assert (reply["status"], reply["assignedNode"], reply["partialResults"]) == ("PENDING", "", [])
    assert (reply["createdAt"], reply["features"], reply["progress"]["frames"]) == ("1700000000", {"vmaf": 93.5}, "7")
    assert reply["createTime"] == "2023-11-14T22:13:20Z"
    assert "updateTime" not in reply  # of this job it is unknown
    assert "scoring" not in reply  # an absent message is left out


@pytest.mark.parametrize("status", wire.JobStatus.values())
async def test_only_a_completed_job_has_a_score_even_if_it_is_zero(
    site: Site, status: "wire.JobStatus.ValueType"
) -> None:
    site.calls.answers["GetJob"] = wire.Job(id="u-1", status=status)
    _, reply = await site.request("GET", "/v1/jobs/u-1")
    assert (reply["status"], reply.get("finalScore")) == (
        wire.JobStatus.Name(status),
        {"COMPLETED": 0.0}.get(reply["status"]),
    )


async def test_the_job_that_an_agent_pulls_has_no_score(site: Site) -> None:
    _, reply = await site.request("POST", "/v1/nodes/video/gpu-1/pull", SESSION)
    assert reply["job"]["status"] == "RUNNING"
    assert "finalScore" not in reply["job"]
    site.calls.answers["PullWork"] = wire.PullWorkResponse()
    assert await site.request("POST", "/v1/nodes/video/gpu-1/pull", SESSION) == (200, {"stopJobIds": []})


async def test_a_submission_has_a_location_header(site: Site) -> None:
    site.calls.answers["SubmitJob"] = wire.SubmitJobResponse(job_id="u/1?", namespace="video")
    async with site.http.post("/v1/jobs", json={}) as response:
        assert response.headers["Location"] == "/v1/jobs/u%2F1%3F?namespace=video"
    await site.request("GET", "/v1/jobs/u%2F1%3F", allow_redirects=False)


async def test_a_node_id_in_a_path_may_have_a_plain_or_an_encoded_slash(site: Site) -> None:
    for path in ("/v1/nodes/video/gpu-1/pull", URL("/v1/nodes/video%2Fgpu-1/pull", encoded=True)):
        status, reply = await site.request("POST", path, {**SESSION, "waitSeconds": 5})
        assert (status, reply["job"]["id"], reply["job"]["status"]) == (200, "u-1-0", "RUNNING")
    requests = [call.request for call in site.calls.received]
    assert requests == [wire.PullWorkRequest(node_id="video/gpu-1", session_token="s", wait_seconds=5)] * 2


@pytest.mark.parametrize("code", get_args(Code))
async def test_each_status_code_has_an_http_status(site: Site, code: Code) -> None:
    site.calls.answers["GetJob"] = StatusError(code, "so it is: ü\n")
    status, reply = await site.request("GET", "/v1/jobs/x")
    assert reply == {"code": code, "message": "so it is: ü\n"}
    caller = {"UNAUTHENTICATED": 401, "PERMISSION_DENIED": 403, "NOT_FOUND": 404, "RESOURCE_EXHAUSTED": 429}
    others = {"INTERNAL": 500, "UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504, "ALREADY_EXISTS": 409, "ABORTED": 409}
    assert status == (caller | others).get(code, 400)


async def test_errors_have_the_headers_of_their_status(site: Site) -> None:
    for code, header in (("UNAUTHENTICATED", "WWW-Authenticate"), ("UNAVAILABLE", "Retry-After")):
        site.calls.answers["GetJob"] = StatusError(code, "")  # type: ignore[arg-type]
        async with site.http.get("/v1/jobs/x") as response:
            assert response.headers[header]


async def test_an_unreachable_api_server_is_unavailable(site: Site) -> None:
    site.calls.answers["GetJob"] = Unreachable("refused", sent=False)
    status, reply = await site.request("GET", "/v1/jobs/x")
    assert (status, reply["code"]) == (503, "UNAVAILABLE")


async def test_the_details_of_an_unexpected_error_are_hidden(site: Site) -> None:
    site.calls.answers["GetJob"] = RuntimeError("the password is 1234")
    assert await site.request("GET", "/v1/jobs/x") == (
        500,
        {"code": "INTERNAL", "message": "internal error; the server's log has the details"},
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"scorin": {}, "x": 1}, "unknown fields: scorin, x; SubmitJobRequest has scoring, namespace, name, spec"),
        ({"scoring": {"refrence": "a"}}, "unknown fields: scoring.refrence; ScoringParams has reference, distorted"),
        ({"job_id": "a"}, "unknown fields: job_id"),
        ({str(i): 0 for i in range(9)}, "unknown fields: 0, 1, 2, 3, 4"),
        ({"name": 5}, "name must be a string, not a number"),
        ({"spec": {"priority": 1}}, "spec must be a string, not an object"),
        ({"scoring": "x"}, "scoring must be an object, not a string"),
        ({"scoring": [{}]}, "scoring must be an object, not an array"),
        ({"scoring": {"reference": True}}, "scoring.reference must be a string, not a boolean"),
        ({"scoring": None}, None),
        (b'{"name": "a", "name": "b"}', "duplicate name 'name'"),
        (b'{"name": NaN}', "NaN is not valid"),
        (b'{"name": "\\ud800"}', ""),
        (b"\xff\xfe", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"[]", "must be a JSON object, not an array"),
        (b"null", "must be a JSON object, not null"),
        (b"{", "not JSON"),
        (b"{} {}", "not JSON"),
        (b"1" * 5000, "not JSON"),
        (b'{"name":' * 17 + b"0" + b"}" * 17, "deeper than 16"),
        (b"[" * 500_000, "deeper than 16"),
        (b'{"name":' + b'"' + b"[" * 50_000 + b'"}', None),  # brackets in a string do not count
        (b'{"name":"' + b'\\"[' * 50 + b'"}', None),
        (b'{"a":"' + b"[" * 20 + b'","b":"' + b'\\"' * 500_000, "not JSON"),  # an unterminated string
        (b"", None),
    ],
)
async def test_a_body_is_validated(site: Site, body: Any, message: str | None) -> None:
    status, reply = await site.request("POST", "/v1/jobs", body)
    if message is None:
        assert status == 201
    else:
        assert (status, reply["code"]) == (400, "INVALID_ARGUMENT")
        assert message in reply["message"]
        assert len(reply["message"]) < 300
        assert site.calls.received == []


NUMBERS = [
    ("score", 1e308, True), ("score", "NaN", True), ("score", "-Infinity", True), ("score", "x", False),
    ("progress", {"frames": "9007199254740993"}, True), ("progress", {"frames": 1.5}, False),
    ("progress", {"frames": 2**63}, False), ("progress", {"frames": "9" * 5000}, False), ("final", "true", False),
    ("features", {"a": "x"}, False), ("partialScores", [1, 2.5], True), ("partialScores", 1, False),
    ("progress", None, True),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "valid"), NUMBERS)
async def test_numbers_are_validated(site: Site, name: str, value: Any, valid: bool) -> None:
    status, _ = await site.request("POST", "/v1/nodes/n/results", {name: value})
    assert status == (200 if valid else 400)


async def test_a_number_out_of_range_is_rejected(site: Site) -> None:
    assert (await site.request("POST", "/v1/nodes/n/results", b'{"score": 1e999}'))[0] == 400


NAMES = st.sampled_from(["scoring", "name", "reference", "labels"])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["scoring", "name", "reference"]) | st.text(), inner)
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=ANY | st.binary())
async def test_no_random_body_causes_an_internal_error(site: Site, body: Any) -> None:
    status, _ = await site.request("POST", "/v1/jobs", body if isinstance(body, bytes) else json.dumps(body).encode())
    assert status in {201, 400}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Type": "application/json; charset=UTF-8"}, 201),
        ({"Content-Type": "application/json; charset=latin-1"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),  # the default of curl -d
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": ""}, 415),
        ({**JSON, "Content-Encoding": "gzip"}, 415),
        ({**JSON, "Content-Encoding": "identity"}, 201),
    ],
)
async def test_a_body_must_be_plain_json_in_utf8(site: Site, headers: dict[str, str], status: int) -> None:
    assert (await site.request("POST", "/v1/jobs", b"{}", headers=headers))[0] == status


async def test_a_field_must_not_differ_between_path_and_body(site: Site) -> None:
    status, reply = await site.request("POST", "/v1/jobs/a/cancel", {"job_id": "b"})
    assert (status, reply["message"]) == (400, "job_id differs between the body and the path; leave it out of the body")


@pytest.mark.parametrize(
    ("headers", "credentials"),
    [
        ({}, CallerCredentials()),
        ({"Authorization": "Bearer abc"}, CallerCredentials("abc")),
        ({"authorization": "bearer  abc "}, CallerCredentials("abc")),
        ({"Authorization": "Bearer"}, CallerCredentials()),
        ({"X-Forwarded-For": "192.0.2.1", "X-Remote-User": "admin"}, CallerCredentials()),
    ],
)
async def test_credentials_come_from_the_authorization_header_only(
    site: Site, headers: dict[str, str], credentials: CallerCredentials
) -> None:
    await site.request("GET", "/v1/jobs/x", headers=headers)
    assert site.calls.received[0].presented == credentials._replace(peer="127.0.0.1")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Authorization", "Basic eDp5")], 401),
        ([("Authorization", "Bearer a"), ("Authorization", "Bearer b")], 400),
        ([("Sec-Fetch-Site", "cross-site")], 403),
        ([("Origin", "https://elsewhere.example")], 403),
        ([("Origin", "null")], 403),
    ],
)
async def test_a_request_with_bad_headers_reaches_no_call(site: Site, headers: Any, status: int) -> None:
    assert (await site.request("GET", "/v1/jobs/x", headers=headers))[0] == status
    assert site.calls.received == []


async def test_a_client_certificate_identifies_the_caller(tmp_path: Path) -> None:
    authority, calls = Authority(), ScriptedController()
    for name, content in (
        ("ca", (authority.certificate,)),
        ("server", authority.server()),
        ("alice", authority.client("alice", "video")),
        ("mallory", Authority().client("alice", "video")),
    ):
        (tmp_path / name).write_bytes(b"".join(content))
    pair, ca = str(tmp_path / "server"), str(tmp_path / "ca")
    server_tls = Certificates(pair, pair, ca).for_http()
    for files in ((pair, ca, ca), (pair, pair, f"{pair}2"), (ca, ca, "")):
        with pytest.raises(ConfigError, match="cannot use"):
            Certificates(*files)

    async def get(port: int, certificate: str | None) -> int:
        client_tls = ssl.create_default_context(cafile=tmp_path / "ca")
        if certificate:
            client_tls.load_cert_chain(tmp_path / certificate)
        async with (
            aiohttp.ClientSession(f"https://127.0.0.1:{port}") as http,
            http.get("/v1/jobs/x", ssl=client_tls) as response,
        ):
            return response.status

    async with server.serve_http(HERE, http_server.site(calls, PROBES), server_tls) as port:  # type: ignore[arg-type]
        assert await get(port, "alice") == 200
        assert await get(port, None) == 200
        with pytest.raises(aiohttp.ClientError):
            await get(port, "mallory")
    credentials = [call.presented for call in calls.received]
    assert credentials == [CallerCredentials("", "alice", ("video",), "127.0.0.1"), CallerCredentials(peer="127.0.0.1")]


async def test_probes_need_no_credentials(site: Site) -> None:
    for path, status, text in (("/healthz", 200, "ok\n"), ("/readyz", 503, "no cache\n")):
        async with site.http.get(path) as response:
            assert (response.status, await response.text()) == (status, text)
            assert response.headers["Server"] == "vmafx"
        async with site.http.head(path) as response:
            assert response.status == status


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/", 404, None),
        ("GET", "/v1/jobs/", 404, None),
        ("GET", "/v1/jobs/a/b", 404, None),
        ("GET", "/v1/nodes/..%2f..%2fetc/heartbeat", 405, "POST"),
        ("DELETE", "/v1/jobs/a", 405, "GET,HEAD"),
        ("PUT", "/v1/jobs", 405, "GET,HEAD,POST"),
        ("HEAD", "/v1/nodes", 405, "POST"),
        ("POST", "/v1/nodes/a/b/c/pull", 404, None),
    ],
)
async def test_an_unknown_path_or_method_is_an_error(
    site: Site, method: str, path: str, status: int, allow: str | None
) -> None:
    async with site.http.request(method, path) as response:
        assert (response.status, response.headers.get("Allow")) == (status, allow)
        if method != "HEAD":
            reply = checked_problem(response, await response.json())
            assert set(reply) == {"code", "message"}
            if allow:
                assert reply["message"] == f"{method} is not allowed here; use {allow.replace(',', ', ')}"


@pytest.mark.parametrize(
    ("query", "accept"),
    [
        ("", "*/*"),
        ("", "application/x-ndjson"),
        ("", "application/json;q=0.5, application/x-ndjson"),
        ("", "application/json, text/plain, */*"),  # both at once: as before there were lists
        ("", "text/html"),
        ("&watch=true", "application/json"),
        ("&watch=1", "*/*"),
    ],
)
async def test_a_stream_has_one_job_per_line(site: Site, query: str, accept: str) -> None:
    path = f"/v1/jobs?status=pending&status=RUNNING,FAILED{query}"
    async with site.http.get(path, headers={"Accept": accept}) as response:
        assert (response.status, response.headers["Content-Type"]) == (200, "application/x-ndjson")
        jobs = [json.loads(line) async for line in response.content]
    assert [(job["id"], job["status"], job.get("finalScore")) for job in jobs] == [
        ("one", "PENDING", None),
        ("two", "COMPLETED", 93.25),
    ]
    (call,) = site.calls.received
    assert list(call.request.status_filter) == [wire.PENDING, wire.RUNNING, wire.FAILED]
    assert site.calls.closed == 1


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("status=x", "status 'x' is unknown; use one of PENDING, RUNNING, COMPLETED, FAILED, CANCELLED"),
        ("states=RUNNING", "unknown parameter 'states'; known: status, namespace, limit, continue, watch"),
        ("status_filter=RUNNING", "unknown parameter 'status_filter'; known: status"),
        ("limit=0", "limit must be a number from 1 to 500, not '0'"),
        ("limit=-1", "limit must be a number from 1 to 500, not '-1'"),
        ("limit=1e3", "limit must be a number"),
        ("limit=%D9%A1", "limit must be a number"),  # an Arabic digit
        ("limit=9999999999", "limit must be a number"),
        ("limit=5&limit=6", "the parameter limit is given 2 times; give it once"),
        ("watch=yes", "watch must be true or false, not 'yes'"),
        ("watch=true&limit=5", "limit and continue are for lists; leave them out with watch=true"),
        ("watch=true&continue=x", "limit and continue are for lists"),
        ("continue=" + "x" * 2049, "continue is not a token of this server"),
        ("limit=5&status=x", "status 'x' is unknown"),
    ],
)
async def test_query_parameters_are_validated(site: Site, query: str, message: str) -> None:
    status, reply = await site.request("GET", f"/v1/jobs?{query}")
    assert status == 400
    assert reply["message"].startswith(message)
    assert site.calls.received == []


@pytest.mark.parametrize(
    ("query", "headers", "limit", "token"),
    [
        ("", {"Accept": "application/json"}, 100, ""),
        ("", {"Accept": "application/x-ndjson;q=0.1, application/json;q=0.9"}, 100, ""),
        ("&watch=false", {"Accept": "application/x-ndjson"}, 100, ""),
        ("&limit=7", {}, 7, ""),
        ("&limit=501", {}, 500, ""),
        ("&continue=abc%3D", {}, 100, "abc="),
        ("&continue=", {}, 100, ""),
    ],
)
async def test_a_list_has_one_page_of_jobs(
    site: Site, query: str, headers: dict[str, str], limit: int, token: str
) -> None:
    path = f"/v1/jobs?status=running&namespace=video{query}"
    status, reply = await site.request("GET", path, headers=headers)
    assert (status, set(reply), reply["continue"]) == (200, {"jobs", "continue"}, "next")
    (job,) = reply["jobs"]
    assert (job["id"], job["createTime"], "finalScore" in job) == ("one", "2023-11-14T22:13:20Z", False)
    (call,) = site.calls.received
    assert call.request == wire.ListJobsRequest(
        status_filter=[wire.RUNNING], namespace="video", limit=limit, continue_token=token
    )


async def test_head_sends_the_headers_of_a_get(site: Site) -> None:
    for path, content_type in (("/v1/jobs/x", "application/json"), ("/v1/jobs", "application/x-ndjson")):
        async with site.http.head(path) as response:
            assert (response.status, response.headers["Content-Type"]) == (200, content_type)
            assert await response.read() == b""
    assert site.calls.closed == 1


async def test_the_id_of_a_request_is_sent_back(site: Site) -> None:
    for path in ("/v1/jobs/x", "/v1/jobs", "/nothing"):
        async with site.http.get(path, headers={"X-Request-Id": "encode-42"}) as response:
            assert response.headers["X-Request-Id"] == "encode-42"


async def test_a_stream_that_fails_at_its_start_has_an_error_status(site: Site) -> None:
    async def jobs() -> AsyncGenerator[wire.Job]:
        if site:
            raise StatusError("PERMISSION_DENIED", "you may not")
        yield wire.Job()

    site.calls.jobs = jobs
    assert await site.request("GET", "/v1/jobs") == (403, {"code": "PERMISSION_DENIED", "message": "you may not"})


@pytest.mark.parametrize(
    ("error", "last"),
    [
        (StatusError("UNAVAILABLE", "gone"), {"code": "UNAVAILABLE", "message": "gone"}),
        (ValueError("secret"), {"code": "INTERNAL", "message": "internal error; the server's log has the details"}),
        (TimeoutError(), {"code": "DEADLINE_EXCEEDED", "message": "the request took too long; try again"}),
    ],
)
async def test_a_stream_that_fails_later_ends_with_the_error(site: Site, error: Exception, last: Any) -> None:
    async def jobs() -> AsyncGenerator[wire.Job]:
        yield wire.Job(id="one")
        raise error

    site.calls.jobs = jobs
    async with site.http.get("/v1/jobs") as response:
        lines = [json.loads(line) async for line in response.content]
    assert lines[0]["id"] == "one"
    assert [checked_members(line) for line in lines[1:]] == [last]


def test_every_call_of_the_service_is_scripted() -> None:
    assert {*ANSWERS, "StreamJobs"} == set(wire.DESCRIPTOR.services_by_name["VmafxController"].methods_by_name)
