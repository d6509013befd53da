"""The OpenAPI document: complete, valid, and matching what the server does."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import aiohttp
import pytest

from tests.support.scripted_controller import ScriptedController
from vmafx.controller import http_server
from vmafx.controller.openapi import document
from vmafx.controller.openapi_texts import FIELDS
from vmafx.controller.routes import ROUTES
from vmafx.http import server
from vmafx.http.address import ListenAddress
from vmafx.http.responses import ProbeRoutes, probe_response
from vmafx.wire import controller_pb2 as wire

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


def resolved(part: dict[str, Any]) -> dict[str, Any]:
    """The part of the document that a reference leads to, or the part itself."""
    if "$ref" not in part:
        return part
    found: Any = document()
    for name in part["$ref"].removeprefix("#/").split("/"):
        found = found[name]
    assert isinstance(found, dict)
    return found


def parameters(operation: dict[str, Any], where: str) -> list[dict[str, Any]]:
    found = [resolved(parameter) for parameter in operation.get("parameters", [])]
    return [parameter for parameter in found if parameter["in"] == where]


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def violations(value: Any, schema: dict[str, Any], where: str = "$") -> Iterator[str]:
    """Validate a value with the subset of JSON Schema that the document uses."""
    schema = resolved(schema)
    if not isinstance(value, TYPES[schema["type"]]) or (isinstance(value, bool) and schema["type"] != "boolean"):
        yield f"{where} is not of type {schema['type']}"
    elif not is_allowed(value, schema):
        yield f"{where} is not allowed by its schema"
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


def is_allowed(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a single value has the form that its schema states."""
    if "enum" in schema and value not in schema["enum"]:
        return False
    if schema["type"] == "integer":
        return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
    if schema.get("format") == "date-time":
        return datetime.fromisoformat(value).tzinfo is not None
    return re.search(schema.get("pattern", ""), str(value)) is not None


def test_the_document_is_complete() -> None:
    openapi = document()
    assert openapi["openapi"] == "3.1.0"
    assert openapi["info"]["title"]
    assert openapi["info"]["version"]
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(ids) == len(set(ids))
    schemes = set(openapi["components"]["securitySchemes"])
    for method, path, operation in operations():
        named = [item["name"] for item in parameters(operation, "path")]
        assert named == re.findall(r"{(\w+)}", path)
        assert all(item["required"] for item in parameters(operation, "path"))
        assert operation["responses"]
        assert all(response["description"] for response in operation["responses"].values())
        assert {name for item in operation["security"] for name in item} <= schemes
        assert ("requestBody" in operation) == (method == "post")


def test_every_reference_resolves_and_every_component_is_used() -> None:
    components = document()["components"]
    schemas = components["schemas"]
    used = {part["$ref"] for part in all_objects(document()) if "$ref" in part}
    shared = ("schemas", "parameters", "headers")
    assert used == {f"#/components/{kind}/{name}" for kind in shared for name in components[kind]}
    assert {part["type"] for part in all_objects(schemas) if isinstance(part.get("type"), str)} <= set(TYPES)


def test_the_document_has_exactly_the_routes_of_the_server() -> None:
    site = http_server.site(ScriptedController(), PROBES)  # type: ignore[arg-type]
    calls = {(route.method.lower(), re.sub(r"{(\w+):.*?}(?=/|$)", r"{\1}", route.path)) for route in site.routes}
    assert calls | {("get", path) for path in site.probes} == {(method, path) for method, path, _ in operations()}


def test_every_field_and_parameter_has_a_description() -> None:
    components = document()["components"]
    for name, schema in components["schemas"].items():
        missing = [field for field, part in schema["properties"].items() if not part.get("description")]
        assert not missing, f"{name} has fields without a description"
    for _, path, operation in operations():
        described = [resolved(parameter) for parameter in operation.get("parameters", [])]
        assert all(parameter["description"].endswith(".") for parameter in described), path
    assert all(header["description"] for header in components["headers"].values())


def test_every_description_is_of_a_field() -> None:
    messages = wire.DESCRIPTOR.message_types_by_name
    fields = {name: {field.json_name for field in message.fields} for name, message in messages.items()}
    fields["Job"] |= {"createTime", "updateTime"}
    assert {name: set(texts) - fields[name] for name, texts in FIELDS.items()} == {name: set() for name in FIELDS}


def test_every_operation_has_examples_that_match_their_schemas() -> None:
    for method, path, operation in operations():
        bodies = [operation["requestBody"]] if method == "post" else []
        for body in (*bodies, *operation["responses"].values()):
            for media_type, content in body["content"].items():
                assert list(violations(content["example"], content["schema"])) == [], (path, media_type)
        for parameter in map(resolved, operation.get("parameters", [])):
            assert list(violations(parameter["example"], parameter["schema"])) == [], (path, parameter["name"])
    for header in document()["components"]["headers"].values():
        assert list(violations(header["example"], header["schema"])) == []


def test_examples_have_every_field_of_a_response() -> None:
    for _, path, operation in operations():
        for status, response in operation["responses"].items():
            for content in response["content"].values():
                properties = resolved(content["schema"]).get("properties", {})
                assert set(properties) == set(content["example"]) or not properties, (path, status)


async def test_example_requests_are_accepted() -> None:
    calls = ScriptedController()
    async with (
        server.serve_http(HERE, http_server.site(calls, PROBES)) as port,  # type: ignore[arg-type]
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as http,
    ):
        for method, path, operation in operations():
            if not path.startswith("/v1/"):
                continue
            url = path
            for parameter in parameters(operation, "path"):
                url = url.replace(f"{{{parameter['name']}}}", parameter["example"])
            query = {item["name"]: query_text(item["example"]) for item in parameters(operation, "query")}
            headers = {item["name"]: item["example"] for item in parameters(operation, "header")}
            body = operation["requestBody"]["content"]["application/json"]["example"] if method == "post" else None
            async with http.request(method, url, params=query, headers=headers, json=body) as response:
                assert response.status in {200, 201}, await response.text()
                assert response.headers["X-Request-Id"] == headers["X-Request-Id"]
    called = [call.call for call in calls.received]
    expected = [route.list_call or route.call for route in ROUTES]  # the example of a query asks for a list
    assert called == expected


def query_text(value: Any) -> str:
    return ",".join(value) if isinstance(value, list) else str(value).lower() if isinstance(value, bool) else str(value)


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
        content = document()["paths"]["/v1/jobs"]["get"]["responses"]["200"]["content"]
        async with http.get("/v1/jobs?limit=2") as response:
            assert list(violations(await response.json(), content[response.content_type]["schema"])) == []
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
        ({"createTime": "2026-01-01T00:00:00Z"}, False),
        ({"createTime": "2026-01-01T00:00:00"}, True),
    ],
)
def test_the_schema_of_a_job_rejects_invalid_values(value: Any, invalid: bool) -> None:
    assert bool(list(violations(value, {"$ref": "#/components/schemas/Job"}))) is invalid
