"""The description of the HTTP API: whole, in order, and what the server really does."""

import json
import re
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from tests.support.scripted import Scripted
from vmafx.controller import http_server
from vmafx.controller.openapi import document
from vmafx.controller.routes import ROUTES
from vmafx.http import server
from vmafx.http.address import ListenAddress
from vmafx.http.responses import ProbeRoutes, probe_response

HERE = ListenAddress("127.0.0.1", 0)
PAGES: ProbeRoutes = {path: probe_response(lambda: None) for path in ("/healthz", "/readyz", "/metrics")}
TYPES: dict[str, Any] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float),
}  # fmt: skip


def everything(part: Any) -> Iterator[dict[str, Any]]:
    """Every object in it, at any depth."""
    if isinstance(part, dict):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else []:
        yield from everything(inner)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def misfits(value: Any, schema: dict[str, Any], where: str = "$") -> Iterator[str]:
    """How a value breaks a schema, in the words of JSON Schema that ours uses."""
    if "$ref" in schema:
        schema = document()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if not isinstance(value, TYPES[schema["type"]]):
        yield f"{where} is no {schema['type']}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{where} is none of its values"
    elif schema["type"] == "array":
        for one in value:
            yield from misfits(one, schema["items"], f"{where}[]")
    elif schema["type"] == "object":
        yield from (f"{where}.{name} is missing" for name in schema.get("required", []) if name not in value)
        for name, one in value.items():
            inner = schema.get("properties", {}).get(name, schema.get("additionalProperties", True))
            if inner is False:
                yield f"{where}.{name} is not described"
            elif inner is not True:
                yield from misfits(one, inner, f"{where}.{name}")


def test_its_parts_are_there_and_in_order() -> None:
    whole = document()
    assert whole["openapi"] == "3.1.0"
    assert whole["info"]["title"]
    assert whole["info"]["version"]
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(ids) == len(set(ids))
    schemes = set(whole["components"]["securitySchemes"])
    for method, path, operation in operations():
        named = [one["name"] for one in operation.get("parameters", []) if one["in"] == "path"]
        assert named == re.findall(r"{(\w+)}", path)
        assert all(one["required"] for one in operation.get("parameters", []) if one["in"] == "path")
        assert operation["responses"]
        assert all(answer["description"] for answer in operation["responses"].values())
        assert {name for one in operation["security"] for name in one} <= schemes
        assert ("requestBody" in operation) == (method == "post")


def test_every_reference_leads_somewhere_and_every_schema_is_used() -> None:
    schemas = document()["components"]["schemas"]
    used = {part["$ref"].removeprefix("#/components/schemas/") for part in everything(document()) if "$ref" in part}
    assert used == set(schemas)
    assert {part["type"] for part in everything(schemas) if isinstance(part.get("type"), str)} <= set(TYPES)


def test_every_route_is_in_it_and_nothing_else() -> None:
    site = http_server.site(Scripted(), PAGES)  # type: ignore[arg-type]
    calls = {(route.method.lower(), re.sub(r"{(\w+):.*?}(?=/|$)", r"{\1}", route.path)) for route in site.routes}
    assert calls | {("get", path) for path in site.probes} == {(method, path) for method, path, _ in operations()}


def test_only_the_pages_are_open() -> None:
    open_to_all = {path for _, path, operation in operations() if not operation["security"]}
    assert open_to_all == {"/healthz", "/readyz", "/metrics", "/openapi.json"}


@pytest.mark.parametrize("missing", [None, "no cache"])
async def test_every_answer_of_a_page_is_described(missing: str | None) -> None:
    pages: ProbeRoutes = {"/healthz": probe_response(lambda: missing), "/readyz": probe_response(lambda: missing)}
    async with (
        server.serve_http(HERE, http_server.site(Scripted(), pages)) as port,  # type: ignore[arg-type]
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        for path in pages:
            described = document()["paths"][path]["get"]["responses"]
            async with http.get(path) as answer:
                assert answer.status == (503 if missing else 200)
                assert answer.content_type in described[str(answer.status)]["content"]


def test_a_score_is_described_as_optional() -> None:
    job = document()["components"]["schemas"]["Job"]
    assert "finalScore" not in job.get("required", [])
    assert "left out" in job["properties"]["finalScore"]["description"]


async def test_it_is_served_and_answers_are_as_it_says() -> None:
    async with (
        server.serve_http(HERE, http_server.site(Scripted(), PAGES)) as port,  # type: ignore[arg-type]
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        async with http.get("/openapi.json") as answer:
            assert (answer.status, await answer.json()) == (200, document())
        for route in ROUTES:
            path = route.path.replace("{job_id}", "u-1").replace("{node_id}", "video/gpu-1")
            described = document()["paths"][route.path][route.method.lower()]["responses"]
            async with http.request(route.method, path, json={} if route.method == "POST" else None) as answer:
                content = described[str(answer.status)]["content"][answer.content_type]
                for line in (await answer.text()).splitlines():
                    assert list(misfits(json.loads(line), content["schema"])) == []
        async with http.post("/v1/jobs", json={"x": 1}) as answer:
            schema = described["default"]["content"][answer.content_type]["schema"]
            assert list(misfits(await answer.json(), schema)) == []


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ({"id": "x", "status": "RUNNING", "features": {"a": 1.5}, "createdAt": "7"}, False),
        ({"id": 5}, True),
        ({"status": "GONE"}, True),
        ({"more": 1}, True),
        ({"features": {"a": "x"}}, True),
        ({"progress": {"frames": 7}}, True),
    ],
)
def test_the_description_tells_good_from_bad(value: Any, wrong: bool) -> None:
    assert bool(list(misfits(value, {"$ref": "#/components/schemas/Job"}))) is wrong
