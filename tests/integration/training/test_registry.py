"""Versions pushed to a real registry: what it has then, and what is said if it refuses."""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import requests

from tests.support.registry import (
    PASSWORD,
    USER,
    TokenService,
    docker_config,
    learned_model,
    make_version,
    password_auth,
    running_registry,
)
from tests.support.webserver import Answer, Request, WebServer, head, says, stalls, without_end
from vmafx.devcluster.registry import OciRegistry
from vmafx.scoring.artifact import CONFIG_TYPE, MANIFEST_TYPE, MODEL_TYPE, ModelArtifact, ModelManifest
from vmafx.training.registry import ModelRepository, PushFailed
from vmafx.training.versions import ModelMetadata


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciRegistry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


@pytest.fixture(scope="module")
def protected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciRegistry]:
    folder = tmp_path_factory.mktemp("protected")
    with running_registry(folder, password_auth(folder)) as registry:
        yield registry


def get(registry: OciRegistry, path: str) -> tuple[bytes, str]:
    response = requests.get(f"http://{registry.address}/v2/{path}", headers={"Accept": MANIFEST_TYPE}, timeout=10)
    assert response.status_code == 200
    return response.content, response.headers.get("Docker-Content-Digest", "")


def test_a_version_is_in_the_registry_by_digest_and_tags(registry: OciRegistry, tmp_path: Path) -> None:
    first = make_version(tmp_path, learned_model(), 1)
    second = make_version(tmp_path, learned_model(offset=0.4), 2)
    repository = ModelRepository(f"{registry.address}/team/vmaf")
    repository.push(first, 1)
    repository.push(second, 2)
    repository.push(second, 2)  # repeated after a crash

    for reference, version in ((first.digest, first), ("v1", first), ("v2", second), ("latest", second)):
        assert get(registry, f"team/vmaf/manifests/{reference}") == (version.manifest, version.digest)
    manifest = msgspec.json.decode(first.manifest, type=ModelManifest)
    assert (manifest.config.mediaType, manifest.layers[0].mediaType) == (CONFIG_TYPE, MODEL_TYPE)
    config, _ = get(registry, f"team/vmaf/blobs/{manifest.config.digest}")
    assert msgspec.json.decode(config, type=ModelMetadata).samples == 1000
    model, _ = get(registry, f"team/vmaf/blobs/{manifest.layers[0].digest}")
    assert model == first.model
    assert manifest.layers[0].digest == f"sha256:{hashlib.sha256(model).hexdigest()}"


@pytest.mark.parametrize("path", ["vmaf", "my.team/vmaf", "a/b/c"])
def test_any_repository_of_any_name_of_the_registry(registry: OciRegistry, tmp_path: Path, path: str) -> None:
    version = make_version(tmp_path, learned_model())
    ModelRepository(f"localhost:{registry.address.partition(':')[2]}/{path}").push(version, 1)
    assert get(registry, f"{path}/manifests/latest") == (version.manifest, version.digest)


def test_the_credentials_of_the_config_are_used(protected: OciRegistry, tmp_path: Path) -> None:
    version = make_version(tmp_path, learned_model())
    config = docker_config(tmp_path / "docker", protected.address)
    ModelRepository(f"{protected.address}/team/vmaf", docker_config=config).push(version, 1)
    manifests = protected.content / "docker/registry/v2/repositories/team/vmaf/_manifests/tags"
    assert {path.name for path in manifests.iterdir()} == {"v1", "latest"}


@pytest.mark.parametrize("password", ["wrong password", ""])
def test_refused_credentials_are_an_error_that_does_not_show_them(
    protected: OciRegistry, tmp_path: Path, password: str
) -> None:
    config = docker_config(tmp_path / "docker", protected.address, password) if password else None
    repository = ModelRepository(f"{protected.address}/refused/vmaf", docker_config=config)
    with pytest.raises(PushFailed, match=r"cannot push to .*credentials") as failure:
        repository.push(make_version(tmp_path, learned_model()), 1)
    assert failure.value.__cause__ is None
    assert (password or PASSWORD) not in str(failure.value)
    assert USER not in str(failure.value)


def test_a_damaged_config_is_an_error_that_does_not_show_it(protected: OciRegistry, tmp_path: Path) -> None:
    damaged = msgspec.json.encode({"auths": {protected.address: {"auth": "s3cr3t!"}}})
    (tmp_path / "config.json").write_bytes(damaged)
    repository = ModelRepository(f"{protected.address}/team/vmaf", docker_config=tmp_path)
    with pytest.raises(PushFailed, match=r"config.json is not a config.json") as failure:
        repository.push(make_version(tmp_path / "versions", learned_model()), 1)
    assert "s3cr3t" not in str(failure.value)


def test_a_push_succeeds_when_the_registry_is_back(tmp_path: Path) -> None:
    version = make_version(tmp_path / "versions", learned_model())
    with running_registry(tmp_path / "registry") as registry:
        repository = ModelRepository(f"{registry.address}/team/vmaf")
        registry.stop()
        with pytest.raises(PushFailed, match="cannot connect"):
            repository.push(version, 1)
        registry.start()
        repository.push(version, 1)
        assert get(registry, "team/vmaf/manifests/v1") == (version.manifest, version.digest)


async def test_tokens_of_an_authorization_service(tmp_path: Path) -> None:
    service, version = TokenService(tmp_path), make_version(tmp_path / "versions", learned_model())
    async with WebServer() as server:
        realm = server.serve("/token", service.answer)
        with running_registry(tmp_path / "registry", service.auth(realm)) as registry:
            name = f"{registry.address}/team/vmaf"
            config = docker_config(tmp_path / "docker", registry.address)
            await asyncio.to_thread(ModelRepository(name, docker_config=config).push, version, 1)
            assert service.scopes == ["repository:team/vmaf:pull,push"]

            wrong = docker_config(tmp_path / "wrong", registry.address, "wrong")
            with pytest.raises(PushFailed, match="refused the credentials"):
                await asyncio.to_thread(ModelRepository(name, docker_config=wrong).push, version, 1)


async def test_a_registry_that_stores_something_else_is_an_error(tmp_path: Path) -> None:
    version = make_version(tmp_path, learned_model())
    manifest = msgspec.json.decode(version.manifest, type=ModelManifest)
    async with WebServer() as server:
        server.serve("/v2/", says(200))
        for descriptor in (manifest.config, *manifest.layers):
            server.serve(f"/v2/team/vmaf/blobs/{descriptor.digest}", says(200))
        other = "sha256:" + "0" * 64
        server.serve(f"/v2/team/vmaf/manifests/{version.digest}", says(201, Docker_Content_Digest=other))
        repository = ModelRepository(f"127.0.0.1:{server.port}/team/vmaf")
        with pytest.raises(PushFailed, match="stored a different digest"):
            await asyncio.to_thread(repository.push, version, 1)


async def test_credentials_do_not_follow_an_upload_to_another_host(tmp_path: Path) -> None:
    version = make_version(tmp_path, learned_model())
    manifest = msgspec.json.decode(version.manifest, type=ModelManifest)
    async with WebServer() as server, WebServer() as other:
        unauthorized = says(401, WWW_Authenticate='Basic realm="it"')
        server.serve("/v2/", unauthorized)
        server.serve(f"/v2/team/vmaf/blobs/{manifest.config.digest}", unauthorized, says(404))
        elsewhere = says(202, Location=other.serve("/upload", says(201)))
        server.serve("/v2/team/vmaf/blobs/uploads/", unauthorized, elsewhere)
        registry = f"127.0.0.1:{server.port}"
        repository = ModelRepository(f"{registry}/team/vmaf", docker_config=docker_config(tmp_path, registry))
        with pytest.raises(PushFailed, match="unexpected response"):
            await asyncio.to_thread(repository.push, version, 1)
        assert [bool(sent) for sent in server.asked("authorization")] == [False, False, True, False, True]
        assert other.requests == []


@pytest.mark.parametrize(("status", "why"), [(500, "answered 500"), (404, "answered 404"), (403, "answered 403")])
async def test_a_server_that_refuses(tmp_path: Path, status: int, why: str) -> None:
    async with WebServer() as server:
        server.serve("/v2/", says(status))
        repository = ModelRepository(f"127.0.0.1:{server.port}/team/vmaf")
        with pytest.raises(PushFailed, match=why):
            await asyncio.to_thread(repository.push, make_version(tmp_path, learned_model()), 1)


@pytest.mark.parametrize("token", [b"[]", b"{}", b"no JSON", b'{"token": 5}'])
async def test_an_authorization_service_without_a_token(tmp_path: Path, token: bytes) -> None:
    async with WebServer() as server:
        realm = server.serve("/token", says(200, token))
        server.serve("/v2/", says(401, WWW_Authenticate=f'Bearer realm="{realm}",service="x"'))
        for path in ("blobs/uploads/", "blobs/"):
            server.serve(f"/v2/team/vmaf/{path}", says(401))
        registry = f"127.0.0.1:{server.port}"
        repository = ModelRepository(f"{registry}/team/vmaf", docker_config=docker_config(tmp_path, registry))
        with pytest.raises(PushFailed) as failure:
            await asyncio.to_thread(repository.push, make_version(tmp_path / "versions", learned_model()), 1)
        assert PASSWORD not in str(failure.value)


async def test_a_server_that_hangs(tmp_path: Path) -> None:
    async with WebServer() as server:
        server.serve("/v2/", stalls(b"x", 0))
        repository = ModelRepository(f"127.0.0.1:{server.port}/team/vmaf", timeout=0.2)
        with pytest.raises(PushFailed, match=r"cannot connect|in time"):
            await asyncio.to_thread(repository.push, make_version(tmp_path, learned_model()), 1)


def trickles(content: bytes) -> Answer:
    """Send a byte at a time, without end."""

    async def answer(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(content)
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)

    return answer


@pytest.mark.parametrize("content", [b"HTTP/1.1 200 OK\r\nX: ", head(200, {}), head(401, {})])
async def test_a_server_that_sends_a_byte_at_a_time(tmp_path: Path, content: bytes) -> None:
    async with WebServer() as server:
        server.serve("/v2/", trickles(content))
        repository = ModelRepository(f"127.0.0.1:{server.port}/team/vmaf", deadline=0.3)
        with pytest.raises(PushFailed, match=r"did not complete within 0\.3 s"):
            await asyncio.to_thread(repository.push, make_version(tmp_path, learned_model()), 1)


async def test_a_push_ends_when_the_repository_is_closed(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def hangs(_request: Request, _writer: asyncio.StreamWriter) -> None:
        asked.set()
        await asyncio.Event().wait()

    async with WebServer() as server:
        server.serve("/v2/", hangs)
        repository = ModelRepository(f"127.0.0.1:{server.port}/team/vmaf")
        version = make_version(tmp_path, learned_model())
        push = asyncio.create_task(asyncio.to_thread(repository.push, version, 1))
        await asked.wait()
        repository.close()
        for pushing in (push, asyncio.to_thread(repository.push, version, 1)):
            with pytest.raises(PushFailed, match="the trainer is stopping"):
                await pushing
        assert len(server.requests) == 1


async def test_an_endless_response_is_cut_off(tmp_path: Path) -> None:
    sent: list[int] = []
    async with WebServer() as server:
        server.serve("/v2/", without_end(sent))
        repository = ModelRepository(f"127.0.0.1:{server.port}/team/vmaf")
        with pytest.raises(PushFailed, match="unexpected response"):
            await asyncio.to_thread(repository.push, make_version(tmp_path, learned_model()), 1)
    assert sum(sent) < 64 << 20


def serve_stored(server: WebServer, version: ModelArtifact) -> ModelRepository:
    """A scripted registry that has the blobs of a version and accepts its manifest by digest."""
    manifest = msgspec.json.decode(version.manifest, type=ModelManifest)
    server.serve("/v2/", says(200))
    for descriptor in (manifest.config, *manifest.layers):
        server.serve(f"/v2/team/vmaf/blobs/{descriptor.digest}", says(200))
    server.serve(f"/v2/team/vmaf/manifests/{version.digest}", says(201))
    return ModelRepository(f"127.0.0.1:{server.port}/team/vmaf")


@pytest.mark.parametrize("status", [400, 405, 409, 412])
async def test_a_tag_that_is_refused_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], status: int
) -> None:
    version = make_version(tmp_path, learned_model())
    async with WebServer() as server:
        repository = serve_stored(server, version)
        server.serve("/v2/team/vmaf/manifests/v7", says(status))
        server.serve("/v2/team/vmaf/manifests/latest", says(status))
        await asyncio.to_thread(repository.push, version, 7)
    logged = capsys.readouterr().err
    assert "v7" in logged
    assert "latest" in logged
    assert logged.count("the registry refused a tag") == 2


@pytest.mark.parametrize("status", [401, 403, 429, 500])
async def test_a_tag_that_may_be_accepted_later_is_an_error(tmp_path: Path, status: int) -> None:
    version = make_version(tmp_path, learned_model())
    async with WebServer() as server:
        repository = serve_stored(server, version)
        server.serve("/v2/team/vmaf/manifests/v7", says(status))
        with pytest.raises(PushFailed):
            await asyncio.to_thread(repository.push, version, 7)


async def test_a_registry_elsewhere_is_reached_with_tls_only(tmp_path: Path) -> None:
    async with WebServer() as server:
        server.serve("/v2/", says(200))
        # A name for this machine that is none of the exceptions.
        repository = ModelRepository(f"127.0.0.2:{server.port}/team/vmaf")
        version = make_version(tmp_path, learned_model())
        with pytest.raises(PushFailed, match=r"cannot connect|TLS"):
            await asyncio.to_thread(repository.push, version, 1)
        assert server.requests == []
