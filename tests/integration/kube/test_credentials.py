"""Credentials against a real API server: rotated tokens, exec plugins, OIDC, and the errors when they are rejected."""

import asyncio
import base64
import json
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.tokens import ACCOUNTS, authority, bearing, create_account, service_account_token
from vmafx.devcluster.pki import Authority, private_pem
from vmafx.kube import Client, Config, ObjectKey, Resource, load_config, plugins
from vmafx.kube.credentials import FetchedToken
from vmafx.kube.errors import ConfigError, Forbidden, Unauthorized, Untrusted
from vmafx.kube.resources import UntypedObject

REVIEWS: Resource[UntypedObject] = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", dict, namespaced=False
)
SELF_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


async def username(client: Client) -> str:
    name: str = (await client.create(REVIEWS, SELF_REVIEW))["status"]["userInfo"]["username"]
    return name


@pytest.fixture
async def account(client: Client, namespace: str) -> ObjectKey:
    key = ObjectKey(namespace, "robot")
    await create_account(client, key)
    return key


def kubeconfig(path: Path, config: Config, user: Mapping[str, object]) -> Path:
    data = base64.b64encode(authority(config).encode()).decode()
    content = {
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": config.server, "certificate-authority-data": data}}],
        "users": [{"name": "x", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }
    path.write_bytes(msgspec.yaml.encode(content))
    return path


async def test_a_client_certificate_authenticates(client: Client) -> None:
    assert await username(client) == "vmafx-dev-admin"


async def test_a_rotated_service_account_token_is_reread(client: Client, account: ObjectKey, tmp_path: Path) -> None:
    host, _, port = client.config.server.removeprefix("https://").partition(":")
    (tmp_path / "ca.crt").write_text(authority(client.config))
    (tmp_path / "namespace").write_text(account.namespace)
    (tmp_path / "token").write_text(await service_account_token(client, account))
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "HOME": "/nowhere"}
    config = load_config(environ=environ, service_account=tmp_path)
    assert config.namespace == account.namespace
    async with Client(config) as pod:
        me = f"system:serviceaccount:{account.namespace}:robot"
        assert await username(pod) == me
        # Recreating the account invalidates its token; the kubelet then writes a new one.
        await client.delete(ACCOUNTS, account)
        await create_account(client, account)
        with pytest.raises(Unauthorized, match=r"the token is invalid or was revoked \(from .*/token\)"):
            await wait_for_rejection(pod)
        (tmp_path / "token").write_text(await service_account_token(client, account))
        assert await username(pod) == me


async def wait_for_rejection(client: Client) -> None:
    """The server caches a valid token for some seconds."""
    async with asyncio.timeout(60):
        while True:
            await username(client)
            await asyncio.sleep(0.2)


async def test_an_exec_plugin_runs_once_and_again_after_a_rejection(
    client: Client, account: ObjectKey, tmp_path: Path
) -> None:
    token = await service_account_token(client, account)
    calls, tokens = tmp_path / "calls", tmp_path / "tokens"
    tokens.write_text("wrong\n" + token + "\n")
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import json, pathlib, sys\n"
        f"calls = pathlib.Path({str(calls)!r}); calls.open('a').write('x')\n"
        f"token = pathlib.Path({str(tokens)!r}).read_text().split()[len(calls.read_text()) - 1]\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': token}}))\n"
    )
    settings = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(plugin)],
        "interactiveMode": "Never",
    }
    config = load_config(kubeconfig(tmp_path / "config", client.config, {"exec": settings}))
    async with Client(config) as through:
        for _ in range(3):
            assert await username(through) == f"system:serviceaccount:{account.namespace}:robot"
    assert calls.read_text() == "xx"


def exec_user(script: str, **more: object) -> dict[str, object]:
    settings = {
        "apiVersion": "v1",
        "command": sys.executable,
        "args": ["-c", script],
        "installHint": "see\nexample.com",
    }
    return {"exec": settings | more}


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("import sys; sys.exit('log in first')", r"failed with exit code 1: log in first; see example\.com"),
        ("print('hello')", "did not print an ExecCredential"),
        ("print(5)", "did not print an ExecCredential"),
        ("import sys; sys.stderr.write('x' * 300000); print('{}')", "did not print an ExecCredential"),
        ('print(\'{"apiVersion": "v1", "status": {}}\')', "returned no token"),
        ('print(\'{"apiVersion": "v9", "status": {"token": "x"}}\')', "uses apiVersion v9, not v1"),
    ],
)
async def test_a_failing_exec_plugin_is_reported_with_the_reason(
    client: Client, tmp_path: Path, script: str, error: str
) -> None:
    config = load_config(kubeconfig(tmp_path / "config", client.config, exec_user(script)))
    async with Client(config) as through:
        with pytest.raises(ConfigError, match=error):
            await username(through)


async def test_a_hanging_exec_plugin_is_killed(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "PLUGIN_TIMEOUT", 0.5)
    script = f"import time; time.sleep(600)  # {tmp_path}"
    config = load_config(kubeconfig(tmp_path / "config", client.config, exec_user(script)))
    async with Client(config) as through:
        with pytest.raises(ConfigError, match="did not finish within"):
            await username(through)
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if script in _read(path)]


def _read(cmdline: Path) -> str:
    """The command line of a process; empty if the process has ended."""
    with suppress(OSError):
        return cmdline.read_text(errors="replace")
    return ""


async def test_an_exec_plugin_is_relative_to_the_kubeconfig_and_gets_cluster_info(
    client: Client, account: ObjectKey, tmp_path: Path
) -> None:
    token = await service_account_token(client, account)
    plugin = tmp_path / "plugins" / "mine"
    plugin.parent.mkdir()
    plugin.write_text(
        f"#!{sys.executable}\n"
        "import json, os\n"
        "info = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        f"assert info['spec']['cluster']['server'] == {client.config.server!r}\n"
        "assert os.environ['GREETING'] == 'hello'\n"
        # A time without a zone is UTC; this one has passed, so the plugin runs for each request.
        f"print(json.dumps({{'apiVersion': 'v1', 'status': {{'token': {token!r},"
        " 'expirationTimestamp': '2020-01-01T00:00:00'}}))\n"
    )
    plugin.chmod(0o755)
    variables = [{"name": "GREETING", "value": "hello"}]
    user = {"exec": {"apiVersion": "v1", "command": "plugins/mine", "env": variables, "provideClusterInfo": True}}
    async with Client(load_config(kubeconfig(tmp_path / "config", client.config, user))) as through:
        assert await username(through) == f"system:serviceaccount:{account.namespace}:robot"


async def test_many_calls_rejected_with_one_token_fetch_one_new_token() -> None:
    fetched: list[str] = []

    async def fetch() -> tuple[str, None]:
        fetched.append(f"t{len(fetched)}")
        await asyncio.sleep(0)
        return fetched[-1], None

    credentials = FetchedToken(fetch, "a test")
    sent = await credentials.header()
    assert set(await asyncio.gather(*(credentials.header(sent) for _ in range(40)))) == {"Bearer t1"}
    assert fetched == ["t0", "t1"]


async def test_a_missing_exec_plugin_is_reported(client: Client, tmp_path: Path) -> None:
    settings = {"apiVersion": "v1", "command": "/nowhere/plugin"}
    config = load_config(kubeconfig(tmp_path / "config", client.config, {"exec": settings}))
    async with Client(config) as through:
        with pytest.raises(ConfigError, match="exec plugin /nowhere/plugin cannot be started: No such file"):
            await username(through)


class Provider:
    """An OIDC provider over TLS, whose id-tokens the test cluster accepts."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.refresh_tokens: list[str] = []  # of the requests
        self.metadata: object = None  # instead of valid provider metadata
        self.authority = Authority()

    async def start(self, folder: Path) -> str:
        certificate, key = self.authority.server()
        (folder / "provider.pem").write_bytes(certificate + key)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(folder / "provider.pem")
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._configuration)
        app.router.add_post("/token", self._refresh)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0, ssl_context=tls).start()
        self.url = f"https://127.0.0.1:{self.runner.addresses[0][1]}"
        return self.url

    async def _configuration(self, _request: web.Request) -> web.Response:
        return web.json_response({"token_endpoint": f"{self.url}/token"} if self.metadata is None else self.metadata)

    async def _refresh(self, request: web.Request) -> web.Response:
        self.refresh_tokens.append(str((await request.post())["refresh_token"]))
        return web.json_response({"id_token": self.token, "refresh_token": f"again-{len(self.refresh_tokens)}"})


@pytest.fixture
async def provider(client: Client, account: ObjectKey, tmp_path: Path) -> AsyncIterator[Provider]:
    provider = Provider(await service_account_token(client, account))
    await provider.start(tmp_path)
    yield provider
    await provider.runner.cleanup()


def oidc_user(provider: Provider, **more: str) -> dict[str, object]:
    settings = {"idp-issuer-url": provider.url, "client-id": "vmafx", "client-secret": "s", "refresh-token": "first"}
    return {"auth-provider": {"name": "oidc", "config": settings | more}}


async def test_an_expired_oidc_token_is_refreshed(
    client: Client, account: ObjectKey, provider: Provider, tmp_path: Path
) -> None:
    trusted = {"idp-certificate-authority-data": base64.b64encode(provider.authority.certificate).decode()}
    user = oidc_user(provider, **trusted, **{"id-token": expired_token()})
    async with Client(load_config(kubeconfig(tmp_path / "config", client.config, user))) as through:
        for _ in range(3):
            assert await username(through) == f"system:serviceaccount:{account.namespace}:robot"
    assert provider.refresh_tokens == ["first"]


async def test_an_untrusted_oidc_provider_gets_no_secrets(client: Client, provider: Provider, tmp_path: Path) -> None:
    config = load_config(kubeconfig(tmp_path / "config", client.config, oidc_user(provider)))
    async with Client(config) as through:
        with pytest.raises(
            ConfigError, match=r"cannot refresh the token at https://127\.0\.0\.1.*certificate verify failed"
        ):
            await username(through)
    assert provider.refresh_tokens == []


@pytest.mark.parametrize("metadata", [{}, {"token_endpoint": "http://127.0.0.1:1/token"}, [5]])
async def test_an_oidc_provider_with_invalid_metadata_is_rejected(
    client: Client, provider: Provider, tmp_path: Path, metadata: object
) -> None:
    provider.metadata = metadata
    trusted = {"idp-certificate-authority-data": base64.b64encode(provider.authority.certificate).decode()}
    config = load_config(kubeconfig(tmp_path / "config", client.config, oidc_user(provider, **trusted)))
    async with Client(config) as through:
        with pytest.raises(ConfigError, match=r"cannot refresh the token at https://127\.0\.0\.1"):
            await username(through)
    assert provider.refresh_tokens == []


def expired_token() -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'exp': 1_700_000_000})}.{part('signature')}"


async def test_the_rejection_of_an_expired_token_names_its_expiry_and_origin(client: Client) -> None:
    config = msgspec.structs.replace(bearing(expired_token(), client.config), origin="context 'x' in y")
    async with Client(config) as through:
        with pytest.raises(
            Unauthorized,
            match=r"rejected the credentials from context 'x' in y: the token expired at 2023-11-14 22:13:20Z",
        ):
            await username(through)


async def test_the_rejection_of_an_expired_certificate_names_its_expiry(client: Client, tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "late")])
    begin, end = datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 2, 1, tzinfo=UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, begin, end)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    user = {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(private_pem(key)).decode(),
    }
    async with Client(load_config(kubeconfig(tmp_path / "config", client.config, user))) as through:
        with pytest.raises(Unauthorized, match=r"the client certificate expired at 2020-02-01 00:00:00Z"):
            await username(through)


async def test_an_error_never_contains_the_token(client: Client) -> None:
    async with Client(bearing("very-secret", client.config)) as through:
        with pytest.raises(Unauthorized) as raised:
            await username(through)
    assert "very-secret" not in f"{raised.value!s} {raised.value!r} {raised.value.status}"


async def test_a_missing_permission_is_named(client: Client, account: ObjectKey) -> None:
    token = await service_account_token(client, account)
    async with Client(bearing(token, client.config)) as robot:
        with pytest.raises(Forbidden, match='cannot list resource "serviceaccounts"'):
            await robot.list(ACCOUNTS, account.namespace)


async def test_a_server_with_another_ca_is_not_trusted(client: Client) -> None:
    tls = ssl.create_default_context(cadata=Authority().certificate.decode())
    async with Client(msgspec.structs.replace(client.config, tls=tls)) as through:
        with pytest.raises(Untrusted, match=r"the certificate of https://127.* is not trusted"):
            await username(through)
