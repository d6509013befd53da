"""Who may call: API keys, sessions of browsers, Kubernetes tokens, and TLS."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import Kubectl
from tests.support.project import ROOT
from tests.support.serve_process import ServeProcess
from tests.support.tokens import create_account, service_account_token
from tests.support.waiting import eventually
from vmafx.auth.reviews import AUDIENCE
from vmafx.devcluster import DevCluster
from vmafx.devcluster.pki import Authority
from vmafx.kube import Client, ObjectKey

ANN, BOB = "ann-has-a-long-key-1", "bob-has-a-long-key-2"


@pytest.fixture
async def keyed(tmp_path: Path, clips: Path) -> AsyncIterator[ServeProcess]:
    (tmp_path / "keys").write_text(f"# of the team\nann {ANN}\nbob {BOB}\n")
    async with ServeProcess(tmp_path, "--auth", "keys", "--keys", str(tmp_path / "keys"), roots=clips) as server:
        yield server


async def test_a_key_is_required_and_jobs_of_others_are_invisible(keyed: ServeProcess, clips: Path) -> None:
    reference, distorted = clips / "reference.mkv", clips / "distorted.mp4"
    for key, message in (("", "an API key is required"), ("wrong-but-long-enough", "not valid")):
        keyed.key = key
        for path in ("/v1/jobs", "/v1/models", f"/v1/results/{'0' * 64}", f"/results/{'0' * 64}"):
            reply = await keyed.get(path)
            assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
            assert message in reply.json()["detail"]
        assert (await keyed.score(reference, distorted)).status == 401
        assert (await keyed.upload(reference, distorted)).status == 401
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert (await keyed.get(path)).status == 200  # for probes and scrapers
    keyed.key = ANN
    accepted = await keyed.score(reference, distorted, prefer="respond-async")
    path = accepted.headers["Location"]
    done = await keyed.until_state(path, "succeeded")
    keyed.key = BOB
    assert (await keyed.get("/v1/jobs")).json()["jobs"] == []
    for method, more in (("GET", ""), ("GET", "/events"), ("POST", "/cancel")):
        assert (await keyed.call(method, f"{path}{more}")).status == 404
    assert (await keyed.get(done["links"]["result"])).status == 200  # whoever knows the key of a result may read it
    log = keyed.log.read_text()
    assert [key for key in (ANN, BOB, "wrong-but-long-enough") if key in log] == []
    assert "call rejected" in log


async def test_keys_are_read_again_when_the_file_changes(keyed: ServeProcess, tmp_path: Path) -> None:
    async def status(key: str) -> int:
        keyed.key = key
        return (await keyed.get("/v1/jobs")).status

    assert await status(BOB) == 200
    (tmp_path / "keys").write_text("ann")  # being edited

    async def is_logged() -> bool:
        assert await status(ANN) == 200
        return any("cannot read the API keys" in line["msg"] for line in keyed.log_lines())

    await eventually(is_logged, "it has seen the file")
    (tmp_path / "keys").write_text(f"ann {ANN}\n")

    async def bob_is_gone() -> bool:
        return await status(BOB) == 401

    await eventually(bob_is_gone, "the key of bob is not valid any more")
    assert await status(ANN) == 200


async def test_many_wrong_keys_are_limited_and_valid_ones_are_not(keyed: ServeProcess) -> None:
    async def is_limited() -> bool:
        keyed.key = "guess-guess-guess-guess"
        return (await keyed.get("/v1/jobs")).status == 429

    await eventually(is_limited, "guesses are limited", every=0)
    keyed.key = ANN
    assert (await keyed.get("/v1/jobs")).status == 200


async def test_a_session_is_a_cookie_for_pages(keyed: ServeProcess, clips: Path) -> None:
    keyed.key = ANN
    result = (await keyed.score(clips / "reference.mkv", clips / "distorted.mp4")).json()
    reply = await keyed.call("POST", "/v1/session")
    assert reply.status == 204
    cookie = reply.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    keyed.key = ""
    page = result["links"]["page"]
    assert (await keyed.get(page)).status == 401
    sent = {"Cookie": cookie.partition(";")[0]}
    assert (await keyed.get(page, headers=sent)).status == 200
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert (await keyed.get(page, headers={**sent, **followed})).status == 200  # a link in a chat
    assert (await keyed.get("/v1/jobs", headers={**sent, **followed})).status == 403
    ended = await keyed.call("DELETE", "/v1/session", headers=sent)
    assert (ended.status, "Max-Age=0" in ended.headers["Set-Cookie"]) == (204, True)
    assert (await keyed.call("POST", "/v1/session")).status == 401


async def test_a_missing_or_malformed_file_of_keys_ends_the_server(tmp_path: Path, clips: Path) -> None:
    for content in (None, "", "ann short\n", "ann two words-that-are-long\n"):
        if content is not None:
            (tmp_path / "keys").write_text(content)
        with pytest.raises(AssertionError, match=r"API key|write NAME KEY"):
            async with ServeProcess(tmp_path, "--auth", "keys", "--keys", str(tmp_path / "keys"), roots=clips):
                pass


async def test_kubernetes_tokens(
    cluster: DevCluster, client: Client, namespace: str, kubectl: Kubectl, tmp_path: Path, clips: Path
) -> None:
    assert kubectl("apply", "-f", str(ROOT / "config/rbac/caller-roles.yaml")).returncode == 0
    for name in ("encoder", "visitor"):
        await create_account(client, ObjectKey(namespace, name))
    kubectl("create", "rolebinding", "encoder", "--clusterrole=vmafx-client", f"--serviceaccount={namespace}:encoder")
    encoder, visitor = [
        await service_account_token(client, ObjectKey(namespace, name), AUDIENCE) for name in ("encoder", "visitor")
    ]
    flags = ("--auth", "token", "--namespace", namespace, "--kubeconfig", str(cluster.kubeconfig))
    async with ServeProcess(tmp_path, *flags, roots=clips) as server:
        assert (await server.get("/v1/jobs")).status == 401
        server.key = encoder

        async def is_allowed() -> bool:
            return (await server.get("/v1/jobs")).status == 200

        await eventually(is_allowed, "the API server has seen the binding")
        accepted = await server.score(clips / "reference.mkv", clips / "distorted.mp4", prefer="respond-async")
        await server.until_state(accepted.headers["Location"], "succeeded")
        server.key = visitor
        reply = await server.score(clips / "reference.mkv", clips / "distorted.mp4")
        assert (reply.status, reply.json()["code"]) == (403, "PERMISSION_DENIED")
        server.key = "not.a.token"
        assert (await server.get("/v1/jobs")).status == 401
        assert encoder not in server.log.read_text()


async def test_tls(tmp_path: Path, clips: Path) -> None:
    authority = Authority()
    paths = [tmp_path / name for name in ("tls.crt", "tls.key")]
    for path, content in zip(paths, authority.server(), strict=True):
        path.write_bytes(content)
    server = ServeProcess(tmp_path, "--tls-cert", str(paths[0]), "--tls-key", str(paths[1]), roots=clips)
    server.trust = ssl.create_default_context(cadata=authority.certificate.decode())
    async with server:
        assert (await server.score(clips / "reference.mkv", clips / "distorted.mp4")).status == 200
        assert "Secure" in (await server.call("POST", "/v1/session")).headers["Set-Cookie"]
    with pytest.raises(AssertionError, match="must be set together"):
        async with ServeProcess(tmp_path, "--tls-cert", str(paths[0]), roots=clips):
            pass
