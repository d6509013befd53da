"""Private addresses, redirects, TLS, and credentials that must not appear in errors."""

import asyncio
import base64
import contextlib
import io
import logging
import os
import socket
import ssl
import traceback
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from tests.support.closed_port import closed_port
from tests.support.webserver import WebServer, hangs_up, has, redirects, says, stalls, without_end
from vmafx import logs
from vmafx.backoff import Backoff
from vmafx.devcluster.pki import Authority
from vmafx.logs import log
from vmafx.scoring.errors import BadInput, NodeFault, ScoringError
from vmafx.scoring.media.access import open_media
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.retry import RetryPolicy

CLIP = b"a clip" * 1000
HERE = MediaPolicy(private=True, retry=RetryPolicy(backoff=Backoff(0.0, 0.0), max_asked=0.0), reserve=0)
GUARDED = msgspec.structs.replace(HERE, private=False)
BASIC = "Basic " + base64.b64encode("user:pä/ss".encode()).decode()


@pytest.fixture
async def other() -> AsyncIterator[WebServer]:
    async with WebServer() as server:
        yield server


@pytest.fixture
def logged_lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """All that is logged at level debug: by vmafx, and by the libraries in this process."""
    out = io.StringIO()
    monkeypatch.setattr(logs, "_sink", logs._Sink())
    logs._sink.out, logs._sink.rank = out, 0
    caplog.set_level(logging.DEBUG)
    return lambda: out.getvalue() + caplog.text


def test_lines_of_vmafx_and_of_libraries_are_captured(logged_lines: Callable[[], str]) -> None:
    """Otherwise the tests of credentials could not fail."""
    log.debug("fetching", uri="http://S3CRET@host")
    logging.getLogger("aiohttp").debug("connecting to S3CRET2")
    assert "uri=http://S3CRET@host" in logged_lines()
    assert "S3CRET2" in logged_lines()


async def content(uri: str, policy: MediaPolicy = HERE) -> bytes:
    async with open_media(uri, "distorted", policy) as opened:
        return os.pread(opened.fd, opened.size, 0)


async def refusal(uri: str, policy: MediaPolicy = HERE) -> str:
    with pytest.raises(BadInput) as refused:
        await content(uri, policy)
    return str(refused.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "0x7f.1"])  # noqa: S104
async def test_private_addresses_are_refused(server: WebServer, host: str) -> None:
    uri = server.serve("/a", has(CLIP), host=host)
    assert "a private, loopback or link-local address" in await refusal(uri, GUARDED)
    assert server.connections == 0


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0", "127.0.0.1.", "LOCALHOST.", "0177.0.0.1", "①②⑦.0.0.1"])
async def test_unusual_spellings_of_private_addresses_are_refused(server: WebServer, host: str) -> None:
    uri = server.serve("/a", has(CLIP), host=host)
    with pytest.raises(ScoringError):
        await content(uri, GUARDED)
    assert server.connections == 0


async def test_private_addresses_are_allowed_if_configured(server: WebServer) -> None:
    for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
        assert await content(server.serve("/a", has(CLIP), host=host)) == CLIP


@pytest.fixture
def lookup(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes every DNS lookup return the given addresses."""

    def resolve_to(port: int, *hosts: str) -> None:
        async def answer(*_: object, **__: object) -> list[tuple[object, ...]]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", answer, raising=False)

    return resolve_to


@pytest.fixture
def loopback_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.1 stands in for the Internet, and nothing else is public."""
    monkeypatch.setattr("vmafx.scoring.media.address_guard.is_public", lambda text: text == "127.0.0.1")


async def test_a_name_that_resolves_to_private_addresses_is_refused(
    server: WebServer, lookup: Callable[..., None]
) -> None:
    lookup(server.port, "10.255.255.1", "127.0.0.1")
    uri = server.serve("/a", has(CLIP), host="rebound.example")
    assert "a private, loopback or link-local address" in await refusal(uri, GUARDED)
    assert server.connections == 0


@pytest.mark.usefixtures("loopback_is_public")
async def test_a_name_with_a_public_and_a_private_address_is_reached_at_the_public_one(
    server: WebServer, lookup: Callable[..., None]
) -> None:
    """A connection lost there is retried, not refused."""
    lookup(server.port, "10.255.255.1", "127.0.0.1")
    assert await content(server.serve("/a", has(CLIP, cut=100), has(CLIP), host="both.example"), GUARDED) == CLIP
    assert len(server.requests) == 2


@pytest.mark.usefixtures("loopback_is_public")
@pytest.mark.parametrize("hosts", [("10.255.255.1", "127.0.0.1"), ("127.0.0.1", "10.255.255.1")])
async def test_an_unreachable_public_address_is_a_node_fault_despite_a_private_one(
    hosts: tuple[str, str], lookup: Callable[..., None]
) -> None:
    with closed_port() as port:
        lookup(port, *hosts)
        with pytest.raises(NodeFault, match="could not connect"):
            await content("http://both.example/a", GUARDED)


async def test_redirects_are_followed(server: WebServer, other: WebServer) -> None:
    end = other.serve("/end%2Fclip", has(CLIP))
    server.serve("/4", redirects(f"{end}?signature=%2Fa%2B", 308))
    server.serve("/3", redirects("4", 307))
    server.serve("/2", redirects("/3?x#fragment", 303))
    server.serve("/1", redirects(f"//127.0.0.1:{server.port}/2", 301))
    assert await content(server.serve("/0", redirects("./1"))) == CLIP
    assert other.requests[0].target == "/end%2Fclip?signature=%2Fa%2B"


async def test_a_redirect_with_invalid_characters_is_quoted(server: WebServer) -> None:
    server.serve("/a%20clip", has(CLIP))
    assert await content(server.serve("/a", redirects("/a clip?b=%2F c"))) == CLIP
    assert server.requests[1].target.startswith("/a%20clip?b=")


async def test_more_than_five_redirects_are_refused(server: WebServer) -> None:
    assert "more than 5 redirects" in await refusal(server.serve("/a", redirects("/a")))
    assert len(server.requests) == 6


@pytest.mark.parametrize(
    "location",
    ["file:///etc/passwd", "s3://bucket/key", "ftp://host/a", "gopher://host/a", "http://[::1/a", ""],
)
async def test_redirects_to_other_schemes_are_refused(server: WebServer, location: str) -> None:
    assert "it redirects to" in await refusal(server.serve("/a", redirects(location)))
    assert len(server.requests) == 1


async def test_redirects_to_a_forbidden_scheme_are_refused(server: WebServer) -> None:
    policy = msgspec.structs.replace(HERE, schemes=frozenset({"http"}))
    assert "not allowed" in await refusal(server.serve("/a", redirects("https://host/a")), policy)


@pytest.mark.usefixtures("loopback_is_public")
async def test_a_redirect_to_a_private_address_is_refused(server: WebServer) -> None:
    uri = server.serve("/a", redirects(f"http://127.0.0.2:{server.port}/b"))
    assert "a private, loopback or link-local address" in await refusal(uri, GUARDED)
    assert server.connections == 1


async def test_userinfo_becomes_basic_authentication(server: WebServer) -> None:
    assert await content(server.serve("/a", has(CLIP), login="user:p%C3%A4%2Fss")) == CLIP
    assert server.asked("authorization") == [BASIC]


async def test_credentials_are_sent_to_the_same_server_only(server: WebServer, other: WebServer) -> None:
    server.serve("/b", redirects(other.serve("/c", has(CLIP))))
    assert await content(server.serve("/a", redirects("/b"), login="user:p%C3%A4%2Fss")) == CLIP
    assert server.asked("authorization") == [BASIC, BASIC]
    assert other.asked("authorization") == [None]


async def test_proxy_variables_are_ignored(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    assert await content(server.serve("/a", has(CLIP))) == CLIP


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a server's key and certificate, and the certificate of its CA."""
    authority = Authority()
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    file.write_bytes(b"".join([*authority.server(), authority.certificate]))
    return file


@pytest.fixture
async def secure(certificate: Path) -> AsyncIterator[WebServer]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    async with WebServer(tls) as server:
        yield server


async def test_https_with_a_trusted_certificate(
    secure: WebServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert await content(secure.serve("/a", has(CLIP, cut=100), has(CLIP))) == CLIP


async def test_an_untrusted_certificate_is_not_retried(secure: WebServer) -> None:
    with pytest.raises(NodeFault, match="certificate is not trusted"):
        await content(secure.serve("/a", has(CLIP)))
    assert secure.requests == []


async def test_redirects_from_https_to_http_are_refused(
    secure: WebServer, server: WebServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    uri = secure.serve("/a", redirects(server.serve("/b", has(CLIP))))
    assert "from https to http" in await refusal(uri)
    assert server.requests == []


SECRET = "S3CRET"
FAILURES = {
    "404": says(404),
    "403": says(403, b"S3CRET"),
    "500": says(500),
    "break": hangs_up(),
    "stall": stalls(CLIP, 10),
    "endless": without_end([]),
    "gzip": says(200, b"x", Content_Encoding="gzip"),
    "coding": says(200, b"x", Content_Encoding="S3CRET"),
    "loop": redirects("/a?token=S3CRET"),
    "out": redirects("ftp://S3CRET:S3CRET@host/a?S3CRET"),
    "nonsense": redirects("http://[S3CRET/a"),
    "unresolved": redirects("http://S3CRET:S3CRET@host.invalid/a?S3CRET"),
    "no HTTP": says(206, b"x"),
    "bad length": says(200, b"x", Content_Length="S3CRET"),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_no_error_contains_a_credential(server: WebServer, failure: str, logged_lines: Callable[[], str]) -> None:
    stall_seconds = 0.05 if failure == "stall" else 30.0
    policy = msgspec.structs.replace(HERE, stall_seconds=stall_seconds, connect_seconds=2.0, max_bytes=1 << 20)
    uri = server.serve("/a", FAILURES[failure], login="S3CRETuser:S3CRETpw") + "?X-Amz-Signature=S3CRET#S3CRET"
    with pytest.raises(ScoringError) as failed:
        await content(uri, policy)
    output = "".join(traceback.format_exception(failed.value)) + logged_lines()
    assert "127.0.0.1" in output
    assert SECRET not in output


async def test_errors_for_refused_addresses_and_unknown_hosts_contain_no_credential(
    logged_lines: Callable[[], str],
) -> None:
    for uri in (
        "http://S3CRET:S3CRET@127.0.0.1:1/a?S3CRET",
        "http://S3CRET:S3CRET@host.invalid/a?S3CRET",
        "http://S3CRET:S3CRET@host:port/a?S3CRET",
        "http://S3CRET:S3CRET@" + "a" * 70 + "/a?S3CRET",
    ):
        for policy in (HERE, GUARDED):
            with pytest.raises(ScoringError) as failed:
                await content(uri, policy)
            assert SECRET not in "".join(traceback.format_exception(failed.value)) + logged_lines()


async def test_the_error_for_a_connection_timeout_contains_no_credential() -> None:
    """aiohttp's own error contains the whole URL."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf, contextlib.ExitStack() as stack:
        for _ in range(4):  # fill the backlog, which nothing accepts from
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(deaf.getsockname())
        uri = f"http://S3CRET:S3CRET@127.0.0.1:{deaf.getsockname()[1]}/a?S3CRET"
        policy = msgspec.structs.replace(HERE, connect_seconds=0.2)
        with pytest.raises(NodeFault, match="could not connect in time") as failed:
            await content(uri, policy)
    assert SECRET not in "".join(traceback.format_exception(failed.value))


async def test_the_display_name_of_an_opened_clip_has_no_credentials(server: WebServer) -> None:
    uri = server.serve("/a", has(CLIP), login="S3CRET:S3CRET") + "?S3CRET"
    async with open_media(uri, "distorted", HERE) as opened:
        assert opened.display_name == f"http://127.0.0.1:{server.port}/a"
