"""The OpenAPI document: complete, valid, and matching what the server does."""

import json
import re
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from tests.support.scripted_controller import ScriptedController
from vmafx.controller import http_server
from vmafx.controller.openapi import document
from vmafx.controller.routes import ROUTES
from vmafx.http import server
from vmafx.http.address import ListenAddress
from vmafx.http.responses import ProbeRoutes, probe_response

HERE = ListenAddress("127.0.0.1", 0)
PROBES: ProbeRoutes = {path: probe_response(lambda: None) for path in ("/healthz", "/readyz", "/metrics")}
TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
}  # fmt: skip


def all_objects(part: Any) -> Iterator[dict[str, Any]]:
    """Every object in the document, at any depth."""
    if isinstance(part, dict):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else []:
        yield from all_objects(inner)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def violations(value: Any, schema: dict[str, Any], where: str = "$") -> Iterator[str]:
    """Validate a value with the subset of JSON Schema that the document uses."""
    if "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if not isinstance(value, TYPES[schema["type"]]):
        yield f"{where} is not of type {schema['type']}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{where} is none of its values"
    elif schema["type"] == "array":
        for item in value:
            yield from violations(item, schema["items"], f"{where}[]")
    elif schema["type"] == "object":
        yield from (f"{where}.{name} is missing" for name in schema.get("required", []) if name not in value)
        for name, item in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties", True))
            if inner is False:
                yield f"{where}.{name} is not described"
            elif inner is not True:
                yield from violations(item, inner, f"{where}.{name}")


def test_the_document_is_complete() -> None:
    openapi = document()
    assert openapi["openapi"] == "3.1.0"
    assert openapi["info"]["title"]
    assert openapi["info"]["version"]
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(ids) == len(set(ids))
    schemes = set(openapi["components"]["securitySchemes"])
    for method, path, operation in operations():
        named = [item["name"] for item in operation.get("parameters", []) if item["in"] == "path"]
        assert named == re.findall(r"{(\w+)}", path)
        assert all(item["required"] for item in operation.get("parameters", []) if item["in"] == "path")
        assert operation["responses"]
        assert all(response["description"] for response in operation["responses"].values())
        assert {name for item in operation["security"] for name in item} <= schemes
        assert ("requestBody" in operation) == (method == "post")


def test_every_reference_resolves_and_every_schema_is_used() -> None:
    schemas = document()["components"]["schemas"]
    used = {part["$ref"].removeprefix("#/components/schemas/") for part in all_objects(document()) if "$ref" in part}
    assert used == set(schemas)
    assert {part["type"] for part in all_objects(schemas) if isinstance(part.get("type"), str)} <= set(TYPES)


def test_the_document_has_exactly_the_routes_of_the_server() -> None:
    site = http_server.site(ScriptedController(), PROBES)  # type: ignore[arg-type]
    calls = {(route.method.lower(), re.sub(r"{(\w+):.*?}(?=/|$)", r"{\1}", route.path)) for route in site.routes}
    assert calls | {("get", path) for path in site.probes} == {(method, path) for method, path, _ in operations()}


def test_only_the_probes_need_no_credentials() -> None:
    unprotected = {path for _, path, operation in operations() if not operation["security"]}
    assert unprotected == {"/healthz", "/readyz", "/metrics", "/openapi.json"}


@pytest.mark.parametrize("missing", [None, "no cache"])
async def test_every_response_of_a_probe_is_described(missing: str | None) -> None:
    probes: ProbeRoutes = {"/healthz": probe_response(lambda: missing), "/readyz": probe_response(lambda: missing)}
    async with (
        server.serve_http(HERE, http_server.site(ScriptedController(), probes)) as port,  # type: ignore[arg-type]
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        for path in probes:
            described = document()["paths"][path]["get"]["responses"]
            async with http.get(path) as response:
                assert response.status == (503 if missing else 200)
                assert response.content_type in described[str(response.status)]["content"]


def test_a_score_is_described_as_optional() -> None:
    job = document()["components"]["schemas"]["Job"]
    assert "finalScore" not in job.get("required", [])
    assert "left out" in job["properties"]["finalScore"]["description"]


async def test_the_document_is_served_and_responses_match_it() -> None:
    async with (
        server.serve_http(HERE, http_server.site(ScriptedController(), PROBES)) as port,  # type: ignore[arg-type]
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        async with http.get("/openapi.json") as response:
            assert (response.status, await response.json()) == (200, document())
        for route in ROUTES:
            path = route.path.replace("{job_id}", "u-1").replace("{node_id}", "video/gpu-1")
            described = document()["paths"][route.path][route.method.lower()]["responses"]
            async with http.request(route.method, path, json={} if route.method == "POST" else None) as response:
                content = described[str(response.status)]["content"][response.content_type]
                for line in (await response.text()).splitlines():
                    assert list(violations(json.loads(line), content["schema"])) == []
        async with http.post("/v1/jobs", json={"x": 1}) as response:
            schema = described["default"]["content"][response.content_type]["schema"]
            assert list(violations(await response.json(), schema)) == []


@pytest.mark.parametrize(
    ("value", "invalid"),
    [
        ({"id": "x", "status": "RUNNING", "features": {"a": 1.5}, "createdAt": "7"}, False),
        ({"id": 5}, True),
        ({"status": "GONE"}, True),
        ({"more": 1}, True),
        ({"features": {"a": "x"}}, True),
        ({"progress": {"frames": 7}}, True),
    ],
)
def test_the_schema_of_a_job_rejects_invalid_values(value: Any, invalid: bool) -> None:
    assert bool(list(violations(value, {"$ref": "#/components/schemas/Job"}))) is invalid
