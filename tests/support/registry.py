"""A real OCI registry for tests: open to everyone, with a password, or with tokens of an authorization service.

`python -m tests.support.registry` builds it before the tests, which have a time limit.
"""

import asyncio
import base64
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.webserver import Request, says
from vmafx.devcluster.progress import PlainProgress
from vmafx.devcluster.registry import OciRegistry, find_registry
from vmafx.scoring.artifact import ModelArtifact
from vmafx.scoring.learned import LearnedModel
from vmafx.scoring.media.registries import RegistryLogin
from vmafx.training.status import Quality
from vmafx.training.versions import ModelMetadata, VersionStore

USER, PASSWORD = "trainer", "correct horse"
_PASSWORD_HASH = "$2a$04$4Y9uErMbIAv/36esRRf02uouS2FJehlBuj4GuOjQ9F7/E1thtQvwa"  # bcrypt, of PASSWORD
FEATURES = ("adm2", "motion2", "vif_scale0", "vif_scale1", "vif_scale2", "vif_scale3")


@contextmanager
def running_registry(folder: Path, auth: Mapping[str, Any] | None = None) -> Iterator[OciRegistry]:
    """A registry until the end of the block."""
    registry = OciRegistry(find_registry(PlainProgress()), folder, auth)
    registry.start()
    try:
        yield registry
    finally:
        registry.stop()


def password_auth(folder: Path) -> dict[str, Any]:
    """The registry asks for USER and PASSWORD."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "htpasswd").write_text(f"{USER}:{_PASSWORD_HASH}\n")
    return {"htpasswd": {"realm": "vmafx", "path": str(folder / "htpasswd")}}


class TokenService:
    """An authorization service as public registries have one: it gives USER tokens for what a request asks for."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.scopes: list[str] = []
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = folder / "issuer.pem"
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")])
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder(name, name, self._key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self._chain = [base64.b64encode(certificate.public_bytes(serialization.Encoding.DER)).decode()]
        self._certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def auth(self, realm: str) -> dict[str, Any]:
        bundle = str(self._certificate)
        return {"token": {"realm": realm, "service": "registry", "issuer": "issuer", "rootcertbundle": bundle}}

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        scope = parse_qs(urlsplit(request.target).query)["scope"][0]
        self.scopes.append(scope)
        if request.headers.get("authorization") != RegistryLogin(USER, PASSWORD).basic():
            await says(401)(request, writer)
            return
        kind, name, actions = scope.split(":")
        access = [{"type": kind, "name": name, "actions": actions.split(",")}]
        now = int(time.time())
        claims = {"iss": "issuer", "aud": "registry", "sub": USER, "nbf": now - 60, "exp": now + 300, "access": access}
        token = jwt.encode(claims | {"iat": now, "jti": "1"}, self._key, "ES256", headers={"x5c": self._chain})
        await says(200, msgspec.json.encode({"token": token}))(request, writer)


def docker_config(folder: Path, registry: str, password: str = PASSWORD) -> Path:
    """A folder with credentials, as DOCKER_CONFIG names it."""
    folder.mkdir(parents=True, exist_ok=True)
    auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
    (folder / "config.json").write_bytes(msgspec.json.encode({"auths": {registry: {"auth": auth}}}))
    return folder


def learned_model(base: str = "vmaf_v0.6.1", offset: float = 0.5) -> LearnedModel:
    """A model whose score depends on two features."""
    return LearnedModel(
        base=base,
        features=FEATURES,
        mean=(0.9, 2.0, 0.5, 0.8, 0.9, 0.9),
        deviation=(0.1, 2.0, 0.2, 0.1, 0.1, 0.1),
        hidden=((0.5, 0.0, 0.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.25, 0.0, 0.0)),
        bias=(0.0, 0.1),
        output=(0.2, 0.3),
        offset=offset,
    )


def make_version(folder: Path, model: LearnedModel, number: int = 1) -> ModelArtifact:
    """The artifact of a version, as a trainer makes it."""
    metadata = ModelMetadata(
        training="team/quality",
        number=number,
        base=model.base,
        time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        samples=1000,
        quality=Quality(2.5, 0.95, 0.9),
    )
    store = VersionStore(folder)
    artifact = store.read(store.add(model, metadata))
    assert artifact is not None
    return artifact


if __name__ == "__main__":
    find_registry(PlainProgress())
