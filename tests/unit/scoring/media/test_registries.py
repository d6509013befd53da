"""Registries: their transport, and the credentials in config.json."""

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.media.registries import Reference, RegistryLogin, find_credentials, url_of
from vmafx.scoring.media.uri import locate

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize("registry", ["registry.example.com", "127.0.0.1:5000", "[::1]:5000", "localhost"])
def test_a_reference_has_three_parts(registry: str) -> None:
    location = locate(f"OCI://{registry}/team/vmaf@{DIGEST}", "model")
    assert location.display_name == f"oci://{registry}/team/vmaf@{DIGEST}"
    assert Reference.of(location) == Reference(registry, "team/vmaf", DIGEST)


@pytest.mark.parametrize(
    "rest",
    [
        "registry.example.com/team/vmaf:latest",
        "registry.example.com/team/vmaf",
        f"registry.example.com@{DIGEST}",
        f"user:secret@registry.example.com/vmaf@{DIGEST}",
        f"registry.example.com/Team@{DIGEST}",
        f"registry.example.com/a/../b@{DIGEST}",
        f"registry.example.com/a?x@{DIGEST}",
        f"registry.example.com/vmaf@{DIGEST[:-1]}",
        f"registry.example.com/vmaf@{DIGEST}\n",
        f"registry.example.com/{'a/' * 600}b@{DIGEST}",
    ],
)
def test_other_references_are_refused_and_not_shown(rest: str) -> None:
    with pytest.raises(BadInput, match="named by its digest") as refused:
        locate(f"oci://{rest}", "model")
    assert "oras resolve REGISTRY/REPOSITORY:TAG" in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("registry", "url"),
    [
        ("registry.example.com", "https://registry.example.com"),
        ("localhost.example.com:80", "https://localhost.example.com:80"),
        ("localhost:5000", "http://localhost:5000"),
        ("127.0.0.1", "http://127.0.0.1"),
        ("[::1]:5000", "http://[::1]:5000"),
        ("inside:5000", "http://inside:5000"),
        ("inside:5001", "https://inside:5001"),
        ("anywhere:1", "http://anywhere:1"),
        ("docker.io", "https://registry-1.docker.io"),
        ("docker.io.example.com", "https://docker.io.example.com"),
    ],
)
def test_tls_is_needed_unless_stated(registry: str, url: str) -> None:
    assert url_of(registry, {"inside:5000", "anywhere"}) == url


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("auths", "found"),
    [
        ({"r.io": {"auth": encoded("me:a:b")}}, RegistryLogin("me", "a:b")),
        ({"https://r.io": {"username": "me", "password": "it"}}, RegistryLogin("me", "it")),
        ({"https://r.io/v2/": {"auth": encoded("me:it"), "email": "x"}}, RegistryLogin("me", "it")),
        ({"r.io.example.com": {"auth": encoded("me:it")}}, None),
        ({"r.io": {}}, None),
        ({}, None),
    ],
)
def test_credentials_are_found_by_the_name_of_the_registry(
    tmp_path: Path, auths: dict[str, Any], found: RegistryLogin | None
) -> None:
    (tmp_path / "config.json").write_bytes(msgspec.json.encode({"auths": auths, "credsStore": "desktop"}))
    assert find_credentials("r.io", tmp_path) == found
    assert find_credentials("r.io", tmp_path / "none") is None


@pytest.mark.parametrize("registry", ["docker.io", "registry-1.docker.io"])
def test_docker_hub_has_a_key_of_its_own(tmp_path: Path, registry: str) -> None:
    auths = {"https://index.docker.io/v1/": {"auth": encoded("me:it")}}
    (tmp_path / "config.json").write_bytes(msgspec.json.encode({"auths": auths}))
    assert find_credentials(registry, tmp_path) == RegistryLogin("me", "it")
    assert find_credentials("index.example.com", tmp_path) is None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b'{"auths": {"r.io": "s3cret"}}',
        b'{"auths": {"r.io": {"auth": "s3c"}}}',
        b'{"s3cret": ' + b"[" * 100_000,
    ],
)
def test_a_damaged_config_is_not_shown(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(NodeFault, match=r"is not a config\.json") as fault:
        find_credentials("r.io", tmp_path)
    assert "s3c" not in str(fault.value)


def test_a_password_is_not_printed() -> None:
    assert "s3cret" not in f"{RegistryLogin('me', 's3cret')!r} {RegistryLogin('me', 's3cret')}"
