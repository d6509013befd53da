"""Who we are to the real server: tokens that are rotated, plugins, providers, and what a refusal says."""

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
WHO = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


async def who(client: Client) -> str:
    name: str = (await client.create(REVIEWS, WHO))["status"]["userInfo"]["username"]
    return name


@pytest.fixture
async def account(client: Client, namespace: str) -> ObjectKey:
    key = ObjectKey(namespace, "robot")
    await create_account(client, key)
    return key


def kubeconfig(path: Path, config: Config, user: Mapping[str, object]) -> Path:
    data = base64.b64encode(authority(config).encode()).decode()
    whole = {
        "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": config.server, "certificate-authority-data": data}}],
        "users": [{"name": "x", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
    }
    path.write_bytes(msgspec.yaml.encode(whole))
    return path


async def test_a_client_certificate(client: Client) -> None:
    assert await who(client) == "vmafx-dev-admin"


async def test_in_a_pod_a_rotated_token_is_noticed(client: Client, account: ObjectKey, tmp_path: Path) -> None:
    host, _, port = client.config.server.removeprefix("https://").partition(":")
    (tmp_path / "ca.crt").write_text(authority(client.config))
    (tmp_path / "namespace").write_text(account.namespace)
    (tmp_path / "token").write_text(await service_account_token(client, account))
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "HOME": "/nowhere"}
    config = load_config(environ=environ, service_account=tmp_path)
    assert config.namespace == account.namespace
    async with Client(config) as pod:
        me = f"system:serviceaccount:{account.namespace}:robot"
        assert await who(pod) == me
        # The account is made anew: the old token is worth nothing any more, and the kubelet writes another.
        await client.delete(ACCOUNTS, account)
        await create_account(client, account)
        with pytest.raises(Unauthorized, match=r"unknown to the server, or was revoked \(from .*/token\)"):
            await wait_for_refusal(pod)
        (tmp_path / "token").write_text(await service_account_token(client, account))
        assert await who(pod) == me


async def wait_for_refusal(client: Client) -> None:
    """The server remembers a good token for some seconds."""
    async with asyncio.timeout(60):
        while True:
            await who(client)
            await asyncio.sleep(0.2)


async def test_an_exec_plugin_is_asked_once_and_again_when_refused(
    client: Client, account: ObjectKey, tmp_path: Path
) -> None:
    token = await service_account_token(client, account)
    calls, answers = tmp_path / "calls", tmp_path / "answers"
    answers.write_text("wrong\n" + token + "\n")
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import json, pathlib, sys\n"
        f"calls = pathlib.Path({str(calls)!r}); calls.open('a').write('x')\n"
        f"token = pathlib.Path({str(answers)!r}).read_text().split()[len(calls.read_text()) - 1]\n"
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
            assert await who(through) == f"system:serviceaccount:{account.namespace}:robot"
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
    ("script", "answer"),
    [
        ("import sys; sys.exit('log in first')", r"failed \(1\): log in first; see example\.com"),
        ("print('hello')", "gave no ExecCredential"),
        ("print(5)", "gave no ExecCredential"),
        ("import sys; sys.stderr.write('x' * 300000); print('{}')", "gave no ExecCredential"),
        ('print(\'{"apiVersion": "v1", "status": {}}\')', "gave no token"),
        ('print(\'{"apiVersion": "v9", "status": {"token": "x"}}\')', "speaks v9, not v1"),
    ],
)
async def test_an_exec_plugin_that_fails_says_why(client: Client, tmp_path: Path, script: str, answer: str) -> None:
    config = load_config(kubeconfig(tmp_path / "config", client.config, exec_user(script)))
    async with Client(config) as through:
        with pytest.raises(ConfigError, match=answer):
            await who(through)


async def test_an_exec_plugin_that_never_ends_is_ended(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugins, "PLUGIN_TIMEOUT", 0.5)
    script = f"import time; time.sleep(600)  # {tmp_path}"
    config = load_config(kubeconfig(tmp_path / "config", client.config, exec_user(script)))
    async with Client(config) as through:
        with pytest.raises(ConfigError, match="did not end within"):
            await who(through)
    assert not [one for one in Path("/proc").glob("[0-9]*/cmdline") if script in _said(one)]


def _said(cmdline: Path) -> str:
    """The command line of a process, which it has before its script runs; nothing if it has ended."""
    with suppress(OSError):
        return cmdline.read_text(errors="replace")
    return ""


async def test_an_exec_plugin_is_told_of_the_cluster_and_found_beside_the_kubeconfig(
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
        # A time without a zone is UTC; this one is long over, so the plugin is asked each time.
        f"print(json.dumps({{'apiVersion': 'v1', 'status': {{'token': {token!r},"
        " 'expirationTimestamp': '2020-01-01T00:00:00'}}))\n"
    )
    plugin.chmod(0o755)
    variables = [{"name": "GREETING", "value": "hello"}]
    user = {"exec": {"apiVersion": "v1", "command": "plugins/mine", "env": variables, "provideClusterInfo": True}}
    async with Client(load_config(kubeconfig(tmp_path / "config", client.config, user))) as through:
        assert await who(through) == f"system:serviceaccount:{account.namespace}:robot"


async def test_of_many_calls_refused_with_one_token_only_the_first_renews_it() -> None:
    fetched: list[str] = []

    async def fetch() -> tuple[str, None]:
        fetched.append(f"t{len(fetched)}")
        await asyncio.sleep(0)
        return fetched[-1], None

    credentials = FetchedToken(fetch, "a test")
    sent = await credentials.header()
    assert set(await asyncio.gather(*(credentials.header(sent) for _ in range(40)))) == {"Bearer t1"}
    assert fetched == ["t0", "t1"]


async def test_an_exec_plugin_that_is_not_there(client: Client, tmp_path: Path) -> None:
    settings = {"apiVersion": "v1", "command": "/nowhere/plugin"}
    config = load_config(kubeconfig(tmp_path / "config", client.config, {"exec": settings}))
    async with Client(config) as through:
        with pytest.raises(ConfigError, match="exec plugin /nowhere/plugin cannot be run: No such file"):
            await who(through)


class Provider:
    """An OIDC provider over TLS, whose id-tokens the test cluster accepts."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.asked: list[str] = []
        self.page: object = None
        self.authority = Authority()

    async def start(self, folder: Path) -> str:
        certificate, key = self.authority.server()
        (folder / "provider.pem").write_bytes(certificate + key)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(folder / "provider.pem")
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._configuration)
        app.router.add_post("/token", self._renew)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0, ssl_context=tls).start()
        self.url = f"https://127.0.0.1:{self.runner.addresses[0][1]}"
        return self.url

    async def _configuration(self, _request: web.Request) -> web.Response:
        return web.json_response({"token_endpoint": f"{self.url}/token"} if self.page is None else self.page)

    async def _renew(self, request: web.Request) -> web.Response:
        self.asked.append(str((await request.post())["refresh_token"]))
        return web.json_response({"id_token": self.token, "refresh_token": f"again-{len(self.asked)}"})


@pytest.fixture
async def provider(client: Client, account: ObjectKey, tmp_path: Path) -> AsyncIterator[Provider]:
    provider = Provider(await service_account_token(client, account))
    await provider.start(tmp_path)
    yield provider
    await provider.runner.cleanup()


def oidc_user(provider: Provider, **more: str) -> dict[str, object]:
    settings = {"idp-issuer-url": provider.url, "client-id": "vmafx", "client-secret": "s", "refresh-token": "first"}
    return {"auth-provider": {"name": "oidc", "config": settings | more}}


async def test_an_oidc_token_is_renewed_when_it_is_over(
    client: Client, account: ObjectKey, provider: Provider, tmp_path: Path
) -> None:
    trusted = {"idp-certificate-authority-data": base64.b64encode(provider.authority.certificate).decode()}
    user = oidc_user(provider, **trusted, **{"id-token": expired_token()})
    async with Client(load_config(kubeconfig(tmp_path / "config", client.config, user))) as through:
        for _ in range(3):
            assert await who(through) == f"system:serviceaccount:{account.namespace}:robot"
    assert provider.asked == ["first"]


async def test_an_oidc_provider_that_cannot_be_trusted_gets_no_secrets(
    client: Client, provider: Provider, tmp_path: Path
) -> None:
    config = load_config(kubeconfig(tmp_path / "config", client.config, oidc_user(provider)))
    async with Client(config) as through:
        with pytest.raises(ConfigError, match=r"no new token from https://127\.0\.0\.1.*certificate verify failed"):
            await who(through)
    assert provider.asked == []


@pytest.mark.parametrize("page", [{}, {"token_endpoint": "http://127.0.0.1:1/token"}, [5]])
async def test_an_oidc_provider_that_makes_no_sense_is_refused(
    client: Client, provider: Provider, tmp_path: Path, page: object
) -> None:
    provider.page = page
    trusted = {"idp-certificate-authority-data": base64.b64encode(provider.authority.certificate).decode()}
    config = load_config(kubeconfig(tmp_path / "config", client.config, oidc_user(provider, **trusted)))
    async with Client(config) as through:
        with pytest.raises(ConfigError, match=r"no new token from https://127\.0\.0\.1"):
            await who(through)
    assert provider.asked == []


def expired_token() -> str:
    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'none'})}.{part({'exp': 1_700_000_000})}.{part('signature')}"


async def test_an_expired_token_is_called_expired(client: Client) -> None:
    config = msgspec.structs.replace(bearing(expired_token(), client.config), origin="context 'x' of y")
    async with Client(config) as through:
        with pytest.raises(
            Unauthorized, match=r"the token expired at 2023-11-14 22:13:20Z; they come from context 'x'"
        ):
            await who(through)


async def test_an_expired_certificate_is_called_expired(client: Client, tmp_path: Path) -> None:
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
            await who(through)


async def test_a_token_never_shows_in_an_error(client: Client) -> None:
    async with Client(bearing("very-secret", client.config)) as through:
        with pytest.raises(Unauthorized) as refused:
            await who(through)
    assert "very-secret" not in f"{refused.value!s} {refused.value!r} {refused.value.status}"


async def test_what_we_may_not_do_is_named(client: Client, account: ObjectKey) -> None:
    token = await service_account_token(client, account)
    async with Client(bearing(token, client.config)) as robot:
        with pytest.raises(Forbidden, match='cannot list resource "serviceaccounts"'):
            await robot.list(ACCOUNTS, account.namespace)


async def test_a_server_with_another_ca_is_not_trusted(client: Client) -> None:
    tls = ssl.create_default_context(cadata=Authority().certificate.decode())
    async with Client(msgspec.structs.replace(client.config, tls=tls)) as through:
        with pytest.raises(Untrusted, match=r"the certificate of https://127.* is not trusted"):
            await who(through)
