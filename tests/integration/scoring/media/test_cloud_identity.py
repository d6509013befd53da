"""The cloud identity of a machine: jobs use it only if the node allows that. Its metadata service is a local server."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.tcp_server import TcpServer
from tests.support.webserver import WebServer, head, says
from tests.support.worker_command import PROGRAMS
from vmafx.jobs.attempt import AttemptSpec
from vmafx.operator.job.pod import COMMAND
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media import gs
from vmafx.scoring.media.access import open_media
from vmafx.scoring.media.policy import MediaPolicy

ROLE_CREDENTIALS = {
    "AccessKeyId": "cloud",
    "SecretAccessKey": "s3cr3t",
    "Token": "t0ken",
    "Expiration": "2999-01-01T00:00:00Z",
    "Code": "Success",
}
WEB_IDENTITY = b"""<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>cloud</AccessKeyId><SecretAccessKey>s3cr3t</SecretAccessKey>
<SessionToken>t0ken</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration></Credentials>
</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""
ROLE = "/latest/meta-data/iam/security-credentials/"
GCE = "/computeMetadata/v1/instance/service-accounts/default"


class MetadataService(TcpServer):
    """Answers as the metadata services of EC2, ECS, EKS and GCE do; a web identity is exchanged here, too."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ")[1].partition("?")[0]
        self.asked.append(path)
        bodies = {
            "/latest/api/token": b"session",
            ROLE: b"role",
            f"{ROLE}role": json.dumps(ROLE_CREDENTIALS).encode(),
            "/sts": WEB_IDENTITY,
            "/container": json.dumps(ROLE_CREDENTIALS).encode(),
            f"{GCE}/": json.dumps({"email": "a@b", "scopes": [], "aliases": ["default"]}).encode(),
            f"{GCE}/token": b'{"access_token": "cloud", "expires_in": 3600, "token_type": "Bearer"}',
        }
        body = bodies.get(path, b"project")
        kind = "application/json" if body.startswith(b"{") else "text/plain"
        fields: dict[str, str | int] = {"Metadata-Flavor": "Google", "Content-Type": kind, "Content-Length": len(body)}
        writer.write(head(200, fields) + body)
        await writer.drain()
        writer.close()


@pytest.fixture
async def metadata() -> AsyncIterator[MetadataService]:
    async with MetadataService() as service:
        yield service


@pytest.fixture
async def store() -> AsyncIterator[WebServer]:
    """A store that denies access to everything, in S3 and Google Cloud Storage."""
    async with WebServer() as server:
        for path in ("/clips/a.mp4", "/clips", "/storage/v1/b/clips/o/a.mp4", "/storage/v1/b/clips/o"):
            server.serve(path, says(403))
        yield server


def variables(source: str, metadata: MetadataService, store: WebServer, folder: Path) -> dict[str, str]:
    """The environment of a machine or Pod whose only credentials are its cloud identity."""
    service, endpoint = f"127.0.0.1:{metadata.port}", f"http://127.0.0.1:{store.port}"
    none, token = str(folder / "none"), folder / "token"
    token.write_text("t0ken")
    aws = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": none,
        "AWS_SHARED_CREDENTIALS_FILE": none,
    }
    found: dict[str, dict[str, str]] = {
        "ec2": aws | {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{service}"},
        "container": aws | {"AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://{service}/container"},
        "web-identity": aws
        | {
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
            "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/r",
            "AWS_ENDPOINT_URL_STS": f"http://{service}/sts",
        },
        "gce": {
            "STORAGE_EMULATOR_HOST": endpoint,
            "GCE_METADATA_HOST": service,
            "GCE_METADATA_IP": service,
            "HOME": none,
        },
    }
    if source not in {"ec2", "gce"}:
        found[source]["AWS_EC2_METADATA_DISABLED"] = "true"
    return found[source]


async def run_worker(source: str, folder: Path, environment: dict[str, str]) -> str:
    """Run the worker's command on a clip in the store; return the message of its result."""
    uri = "gs://clips/a.mp4" if source == "gce" else "s3://clips/a.mp4"
    result = folder / "result"
    spec = json.dumps({"reference": uri, "distorted": uri, "id": AttemptSpec(uri, uri, id="uid-0").id})
    result.unlink(missing_ok=True)
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        env={"PATH": f"{PROGRAMS}:/usr/bin:/bin", "VMAFX_WORK": spec, "VMAFX_ANSWER_FILE": str(result), **environment},
        stderr=asyncio.subprocess.PIPE,
    )
    _, log = await process.communicate()
    assert result.exists(), log.decode()
    answer: dict[str, str] = json.loads(result.read_text())
    return f"{answer['fault']}: {answer['message']}"


@pytest.mark.parametrize("source", ["ec2", "container", "web-identity", "gce"])
async def test_a_job_uses_the_cloud_identity_only_if_the_node_allows_it(
    metadata: MetadataService, store: WebServer, tmp_path: Path, source: str
) -> None:
    environment = variables(source, metadata, store, tmp_path)
    message = await run_worker(source, tmp_path, environment)
    assert "permission denied" in message
    assert "or VMAFX_MEDIA_CLOUD_IDENTITY=true on the node to use its cloud identity" in message
    assert metadata.asked == []
    message = await run_worker(source, tmp_path, environment | {"VMAFX_MEDIA_CLOUD_IDENTITY": "true"})
    assert "VMAFX_MEDIA_CLOUD_IDENTITY" not in message
    assert metadata.asked != []
    assert any("cloud" in (value or "") for value in store.asked("Authorization"))


async def test_a_person_uses_the_identity_of_their_own_machine(
    metadata: MetadataService, store: WebServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables("ec2", metadata, store, tmp_path).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadInput, match="permission denied"):
        async with open_media("s3://clips/a.mp4", "reference", MediaPolicy.from_environ({})):
            pass
    assert f"{ROLE}role" in metadata.asked
    assert any("Credential=cloud/" in (value or "") for value in store.asked("Authorization"))


def google_key(token_uri: str) -> dict[str, str]:
    """The fields of the key of a service account."""
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return {"type": "service_account", "client_email": "a@b", "private_key": pem.decode(), "token_uri": token_uri}


async def test_a_job_uses_the_google_key_of_its_node(
    metadata: MetadataService, store: WebServer, tmp_path: Path
) -> None:
    answer = b'{"access_token": "granted", "expires_in": 3600, "token_type": "Bearer"}'
    fields = google_key(store.serve("/token", says(200, answer, Content_Type="application/json")))
    file = tmp_path / "key.json"
    file.write_text(json.dumps(fields))
    environment = variables("gce", metadata, store, tmp_path) | {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}
    assert "permission denied" in await run_worker("gce", tmp_path, environment)
    assert "Bearer granted" in store.asked("Authorization")
    assert metadata.asked == []


def test_the_google_key_of_a_job_is_sent_to_google_only(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = google_key("http://10.0.0.1/token") | {"universe_domain": "evil.example"}
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS_JSON", json.dumps(fields))
    token = gs._token(MediaPolicy.for_jobs({}))
    assert token._token_uri == "https://oauth2.googleapis.com/token"
    assert token.universe_domain == "googleapis.com"


@pytest.mark.parametrize("named", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
async def test_a_job_cannot_reach_private_addresses_as_a_store(store: WebServer, tmp_path: Path, named: str) -> None:
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    keys[named] = f"http://localhost:{store.port}"
    environment = {f"VMAFX_JOB_{name}": value for name, value in keys.items()}
    message = await run_worker("ec2", tmp_path, environment)
    assert message.startswith("BadInput: ")
    assert "set VMAFX_MEDIA_ALLOW_PRIVATE=true on the node to allow that" in message
    assert store.requests == []
    await run_worker("ec2", tmp_path, environment | {"VMAFX_MEDIA_ALLOW_PRIVATE": "true"})
    assert store.requests != []


@pytest.mark.parametrize(
    "content",
    [
        "S3CRETkey",
        "[]",
        '{"type": "service_account", "private_key": "S3CRETkey"}',
        '{"type": "external_account"}',
        None,
    ],
)
async def test_a_broken_key_of_a_google_account_is_refused(
    metadata: MetadataService, store: WebServer, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "key.json"
    if content is not None:
        file.write_text(content)
    environment = variables("gce", metadata, store, tmp_path)
    message = await run_worker("gce", tmp_path, environment | {"GOOGLE_APPLICATION_CREDENTIALS": str(file)})
    assert "permission denied" in message
    assert "S3CRETkey" not in message
    assert (metadata.asked, store.requests) == ([], [])
