"""The OpenAPI document: complete, with valid examples, and served. All other tests compare responses with it."""

import re
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator

from tests.support.serve_process import ServeProcess
from tests.support.served_api import document, invalid
from vmafx.http.limits import UploadLimits
from vmafx.serving.site import ScoringSite

_PARAMETER = re.compile(r"{(\w+)(?::(?:[^{}]|{[^}]*})*)?}")


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def bodies(operation: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each kind of content of a request or response: its schema and its example."""
    parts = [operation.get("requestBody", {}), *operation["responses"].values()]
    for part in parts:
        yield from part.get("content", {}).values()


def all_objects(part: Any) -> Iterator[dict[str, Any]]:
    """Every object in the document, at any depth."""
    if isinstance(part, dict):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else []:
        yield from all_objects(inner)


def test_every_schema_is_one_and_every_example_is_valid() -> None:
    for schema in document()["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    count = 0
    for _, _, operation in operations():
        for content in bodies(operation):
            assert invalid(content["example"], content["schema"]) == []
            count += 1
        for parameter in operation.get("parameters", []):
            if "$ref" not in parameter:
                assert parameter["description"]
                assert invalid(parameter["example"], parameter["schema"]) == []
    assert count > 25


def test_every_operation_is_described() -> None:
    ids = [operation["operationId"] for _, _, operation in operations()]
    assert len(ids) == len(set(ids))
    for _, path, operation in operations():
        assert operation["summary"]
        named = {item["name"] for item in operation.get("parameters", []) if item.get("in") == "path"}
        assert named == set(re.findall(r"{(\w+)}", path))
        assert all(response["description"] for response in operation["responses"].values())
    unprotected = {(method, path) for method, path, operation in operations() if not operation["security"]}
    probes = {("get", path) for path in ("/healthz", "/readyz", "/metrics", "/openapi.json")}
    assert unprotected == {*probes, ("delete", "/v1/session")}


def test_every_field_of_a_request_or_a_job_is_described() -> None:
    schemas = document()["components"]["schemas"]
    for name in ("ScoreRequest", "RequestOptions", "ServedJobView", "JobError", "ModelInfo"):
        assert [field for field, one in schemas[name]["properties"].items() if "description" not in one] == [], name


def test_every_reference_resolves_and_every_schema_is_used() -> None:
    used = {part["$ref"] for part in all_objects(document()) if isinstance(part.get("$ref"), str)}
    parts = document()["components"]
    known = {f"#/components/{kind}/{name}" for kind in ("schemas", "parameters", "headers") for name in parts[kind]}
    assert used <= known
    assert {one for one in known if one.startswith("#/components/schemas/")} <= used


def test_the_document_has_exactly_the_routes_of_the_server() -> None:
    site = ScoringSite(None, None, UploadLimits(), 10)  # type: ignore[arg-type]
    routes = {(route.method.lower(), _PARAMETER.sub(r"{\1}", route.path)) for route in site.routes()}
    documented = {(method, path) for method, path, _ in operations() if path.startswith(("/v1/", "/results/"))}
    assert {one for one in routes if one[1].startswith(("/v1/", "/results/"))} == documented


def test_no_keyword_of_crds_is_left() -> None:
    names = {name for part in all_objects(document()["components"]) for name in part}
    assert [name for name in names if name.startswith(("x-vmafx", "x-kubernetes"))] == []
    assert [part["pattern"] for part in all_objects(document()) if "\\Z" in str(part.get("pattern"))] == []


async def test_it_is_served_and_cached(server: ServeProcess) -> None:
    reply = await server.get("/openapi.json")
    assert (reply.status, reply.json()) == (200, document())
    again = await server.get("/openapi.json", headers={"If-None-Match": reply.headers["ETag"]}, allow_redirects=False)
    assert again.status == 304


def test_a_response_that_is_not_described_is_found() -> None:
    schema = {"$ref": "#/components/schemas/ServedJobView"}
    assert invalid({"id": "x"}, schema)
    assert invalid({"id": 1, "state": "queued"}, schema)
