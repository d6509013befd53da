"""Models from OCI registries: a real one, and one that lies."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.registry import (
    TokenService,
    docker_config,
    learned_model,
    make_version,
    password_auth,
    running_registry,
)
from tests.support.webserver import WebServer, redirects, says, without_end
from vmafx.backoff import Backoff
from vmafx.devcluster.registry import OciRegistry
from vmafx.scoring.artifact import (
    CONFIG_TYPE,
    MODEL_TYPE,
    Descriptor,
    ModelArtifact,
    ModelManifest,
    digest_of,
    make_artifact,
)
from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.media.access import deliver_report, open_media
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.retry import RetryPolicy
from vmafx.training.registry import ModelRepository

AT_ONCE = RetryPolicy(tries=2, backoff=Backoff(0.01, 0.01))
HERE = MediaPolicy(private=True, retry=AT_ONCE, docker_config=Path("/nonexistent"))


@pytest.fixture
def version(tmp_path: Path) -> ModelArtifact:
    return make_version(tmp_path / "versions", learned_model())


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OciRegistry]:
    with running_registry(tmp_path_factory.mktemp("registry")) as registry:
        yield registry


async def fetched(uri: str, policy: MediaPolicy = HERE) -> bytes:
    async with open_media(uri, "model", policy) as opened:
        return os.pread(opened.fd, 1 << 20, 0)


def uri_of(address: str, version: ModelArtifact) -> str:
    return f"oci://{address}/team/vmaf@{version.digest}"


async def test_a_model_is_fetched_by_its_digest(registry: OciRegistry, version: ModelArtifact) -> None:
    await asyncio.to_thread(ModelRepository(f"{registry.address}/team/vmaf").push, version, 1)
    assert await fetched(uri_of(registry.address, version)) == version.model


async def test_the_policy_applies(registry: OciRegistry, version: ModelArtifact) -> None:
    uri = uri_of(registry.address, version)
    with pytest.raises(BadInput, match="oci:// is not allowed: VMAFX_MEDIA_SCHEMES allows only https://"):
        await fetched(uri, MediaPolicy(schemes=frozenset({"https"}), private=True))
    with pytest.raises(BadInput, match="VMAFX_MEDIA_ALLOW_PRIVATE"):
        await fetched(uri, MediaPolicy(retry=AT_ONCE))


async def test_only_models_can_be_in_a_registry(registry: OciRegistry, version: ModelArtifact) -> None:
    uri = uri_of(registry.address, version)
    with pytest.raises(BadInput, match="clips cannot be in an OCI registry"):
        async with open_media(uri, "reference", HERE):
            pass
    with pytest.raises(BadInput, match="a report cannot be written to an OCI registry"):
        await deliver_report(uri, b"report", HERE)


async def test_an_unknown_digest_is_an_error(registry: OciRegistry) -> None:
    with pytest.raises(BadInput, match="404"):
        await fetched(f"oci://{registry.address}/team/vmaf@sha256:{'0' * 64}")


async def test_a_registry_with_a_password(tmp_path: Path, version: ModelArtifact) -> None:
    with running_registry(tmp_path / "registry", password_auth(tmp_path)) as registry:
        right = docker_config(tmp_path / "right", registry.address)
        wrong = docker_config(tmp_path / "wrong", registry.address, "wrong")
        await asyncio.to_thread(ModelRepository(f"{registry.address}/team/vmaf", docker_config=right).push, version, 1)
        uri = uri_of(registry.address, version)
        assert await fetched(uri, msgspec.structs.replace(HERE, docker_config=right)) == version.model
        for policy in (HERE, msgspec.structs.replace(HERE, docker_config=wrong)):
            with pytest.raises(BadInput, match="permission denied; check the credentials for the registry"):
                await fetched(uri, policy)


async def test_a_registry_with_tokens(tmp_path: Path, version: ModelArtifact, server: WebServer) -> None:
    service = TokenService(tmp_path)
    realm = server.serve("/token", service.answer)
    with running_registry(tmp_path / "registry", service.auth(realm)) as registry:
        config = docker_config(tmp_path / "docker", registry.address)
        repository = ModelRepository(f"{registry.address}/team/vmaf", docker_config=config)
        await asyncio.to_thread(repository.push, version, 1)
        uri = uri_of(registry.address, version)
        assert await fetched(uri, msgspec.structs.replace(HERE, docker_config=config)) == version.model
        assert service.scopes[-1] == "repository:team/vmaf:pull"
        with pytest.raises(BadInput, match="permission denied"):
            await fetched(uri)


async def test_a_registry_that_is_down_is_a_fault_of_the_node(tmp_path: Path, version: ModelArtifact) -> None:
    with running_registry(tmp_path / "registry") as registry:
        await asyncio.to_thread(ModelRepository(f"{registry.address}/team/vmaf").push, version, 1)
        uri = uri_of(registry.address, version)
        registry.stop()
        with pytest.raises(NodeFault, match="could not connect"):
            await fetched(uri)
        registry.start()
        assert await fetched(uri) == version.model


async def test_a_blob_that_was_changed_in_the_registry(tmp_path: Path, version: ModelArtifact) -> None:
    with running_registry(tmp_path / "registry") as registry:
        await asyncio.to_thread(ModelRepository(f"{registry.address}/team/vmaf").push, version, 1)
        digest = digest_of(version.model).removeprefix("sha256:")
        blob = registry.content / "docker/registry/v2/blobs/sha256" / digest[:2] / digest / "data"
        blob.write_bytes(version.model.replace(b"0.5", b"0.7"))
        with pytest.raises(BadInput, match="a model with another digest or size"):
            await fetched(uri_of(registry.address, version))


def serve(server: WebServer, version: ModelArtifact) -> str:
    """A scripted registry with one version; returns its URI."""
    server.serve("/v2/", says(200))
    server.serve(f"/v2/team/vmaf/manifests/{version.digest}", says(200, version.manifest))
    server.serve(blob_path(version), says(200, version.model))
    return uri_of(f"127.0.0.1:{server.port}", version)


def blob_path(version: ModelArtifact) -> str:
    layer = msgspec.json.decode(version.manifest, type=ModelManifest).layers[0]
    return f"/v2/team/vmaf/blobs/{layer.digest}"


async def test_another_manifest_is_refused(server: WebServer, version: ModelArtifact, tmp_path: Path) -> None:
    uri = serve(server, version)
    other = make_version(tmp_path / "other", learned_model(offset=0.1))
    server.serve(f"/v2/team/vmaf/manifests/{version.digest}", says(200, other.manifest))
    with pytest.raises(BadInput, match="a manifest with another digest"):
        await fetched(uri)


@pytest.mark.parametrize("size", [0, -1, 2 << 20])
async def test_a_model_of_an_implausible_size_is_not_fetched(server: WebServer, size: int) -> None:
    layer = Descriptor(MODEL_TYPE, digest_of(b"x"), size)
    config = Descriptor(CONFIG_TYPE, digest_of(b"{}"), 2)
    lying = ModelArtifact(msgspec.json.encode(ModelManifest(config=config, layers=(layer,))), b"{}", b"x")
    uri = serve(server, lying)
    with pytest.raises(BadInput, match="has a model of"):
        await fetched(uri)
    assert not any("/blobs/" in request.target for request in server.requests)


@pytest.mark.parametrize("digest", ["sha256:../../other", "sha512:" + "0" * 128, ""])
async def test_a_model_by_another_digest_is_not_fetched(server: WebServer, digest: str) -> None:
    config = Descriptor(CONFIG_TYPE, digest_of(b"{}"), 2)
    manifest = ModelManifest(config=config, layers=(Descriptor(MODEL_TYPE, digest, 1),))
    with pytest.raises(BadInput, match="another digest than SHA-256"):
        await fetched(serve(server, ModelArtifact(msgspec.json.encode(manifest), b"{}", b"x")))
    assert not any("/blobs/" in request.target for request in server.requests)


async def test_endless_bodies_are_cut_off(server: WebServer, version: ModelArtifact) -> None:
    sent: list[int] = []
    uri = serve(server, version)
    limited = msgspec.structs.replace(HERE, max_bytes=1 << 20)
    server.serve(blob_path(version), without_end(sent))
    with pytest.raises(BadInput, match="larger than"):
        await fetched(uri, limited)
    server.serve(f"/v2/team/vmaf/manifests/{version.digest}", without_end(sent))
    with pytest.raises(BadInput, match="larger than the 64 KiB allowed"):
        await fetched(uri, limited)


async def test_images_are_not_models(server: WebServer) -> None:
    image = make_artifact(b"{}", b"layer", "2026-01-02T03:04:05Z")
    changed = image.manifest.replace(b"application/vnd.vmafx.model.v1", b"application/vnd.oci.image.layer.v1.tar")
    uri = serve(server, ModelArtifact(changed, b"{}", b"layer"))
    with pytest.raises(BadInput, match="not a learned model"):
        await fetched(uri)


async def test_credentials_are_not_sent_to_other_hosts(
    server: WebServer, version: ModelArtifact, tmp_path: Path
) -> None:
    uri = serve(server, version)
    server.serve("/v2/", says(401, WWW_Authenticate='Basic realm="it"'))
    async with WebServer() as store:
        server.serve(blob_path(version), redirects(store.serve("/blob", says(200, version.model))))
        config = docker_config(tmp_path, f"127.0.0.1:{server.port}")
        assert await fetched(uri, msgspec.structs.replace(HERE, docker_config=config)) == version.model
        assert [bool(sent) for sent in server.asked("authorization")] == [False, True, True]
        assert store.asked("authorization") == [None]


async def test_a_redirect_is_checked_like_the_registry(server: WebServer, version: ModelArtifact) -> None:
    uri = serve(server, version)
    server.serve(blob_path(version), redirects("ftp://127.0.0.1/blob"))
    with pytest.raises(BadInput, match="which is not allowed"):
        await fetched(uri)


async def test_a_token_is_not_requested_without_tls(server: WebServer, version: ModelArtifact, tmp_path: Path) -> None:
    uri = serve(server, version)
    for realm, why in (("ftp://127.0.0.1/token", "without TLS"), ("", "without TLS"), ("http://[", "URL is invalid")):
        server.serve("/v2/", says(401, WWW_Authenticate=f'Bearer realm="{realm}",service="x"'))
        with pytest.raises(BadInput, match=why):
            await fetched(uri)


@pytest.mark.parametrize("answer", [b"[]", b'{"x": ' + b"[" * 50_000], ids=["a list", "nested"])
async def test_an_authorization_service_without_a_token(
    server: WebServer, version: ModelArtifact, answer: bytes
) -> None:
    uri, realm = serve(server, version), server.serve("/token", says(200, answer))
    server.serve("/v2/", says(401, WWW_Authenticate=f'Bearer realm="{realm}"'))
    with pytest.raises(BadInput, match="sent no token"):
        await fetched(uri)
