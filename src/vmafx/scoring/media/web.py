"""Downloads and uploads by http and https, with aiohttp.

fsspec's downloads cannot resume, do not limit an endless body and do not check addresses. aiohttp's error messages
contain URLs with their queries, so they are replaced by the texts in this module.
"""

import asyncio
import base64
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import msgspec
from yarl import URL

from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.media.address_guard import AddressGuard
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.retry import TransferInterrupted, retry_after, retry_transfer
from vmafx.scoring.media.staging import StagedFile
from vmafx.scoring.media.uri import Location, display_name
from vmafx.tasks import in_thread

MAX_REDIRECTS = 5
BLOCK_SIZE = 1 << 20
READ_BUFFER_SIZE = 1 << 17  # small, since aiohttp discards its buffer when a connection is lost
_NETWORK_ERRORS = (aiohttp.ClientError, TimeoutError, OSError)
_REDIRECTS = {301, 302, 303, 307, 308}
_RETRYABLE = {408, 425, 429}
_SENDABLE = re.compile(r"[!-~]*")
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")

_REASONS: tuple[tuple[type[Exception], str], ...] = (  # the first match applies
    (aiohttp.ClientConnectorDNSError, "its host name could not be resolved"),
    (aiohttp.ClientConnectorSSLError, "the TLS handshake failed"),
    (aiohttp.ClientConnectorError, "could not connect: connection refused or host unreachable"),
    (aiohttp.ConnectionTimeoutError, "could not connect in time"),
    (aiohttp.ServerTimeoutError, "the server sent no data for too long"),
    (TimeoutError, "the transfer is too slow"),
    (aiohttp.ClientResponseError, "the server did not answer with valid HTTP"),
)


class DownloadRequest(msgspec.Struct, frozen=True):
    """What a request has beside its URL, and which responses are accepted."""

    login: str | None = None  # Authorization header; sent only to the host of the URL
    accept: str = "*/*"
    redirects: frozenset[str] | None = None  # schemes that a redirect may have (default: those of the policy)
    denied: str = "check the user and password in the URL, or whether its signature has expired"


async def fetch(location: Location, staging: StagedFile) -> None:
    async with open_session(staging.policy) as (session, guard):
        download = HttpDownload(session, guard, location, staging)
        action = f"cannot fetch {location.display_name}"
        await retry_transfer(download.resume, lambda: staging.size, staging.policy.retry, action)


async def put(location: Location, content: bytes, policy: MediaPolicy) -> None:
    """Uploads with PUT, which is safe to repeat."""
    async with open_session(policy) as (session, guard):
        upload = HttpUpload(session, guard, location, content)
        await retry_transfer(upload.send, lambda: 0, policy.retry, f"cannot write {location.display_name}")


async def read_challenge(session: aiohttp.ClientSession, guard: AddressGuard, url: str, name: str) -> str:
    """How the server wants callers to authenticate (WWW-Authenticate); empty if it does not ask for that."""
    guard.reset()
    try:
        async with session.get(url, allow_redirects=False) as response:
            if response.status >= 500 or response.status in _RETRYABLE:
                raise TransferInterrupted(f"the server answered {response.status}")
            return response.headers.get("WWW-Authenticate", "") if response.status == 401 else ""
    except (aiohttp.InvalidURL, UnicodeError):
        raise BadInput("model", f"cannot fetch {name}: the name of the registry is invalid") from None
    except _NETWORK_ERRORS as error:
        raise _translated(error, guard, lambda why: BadInput("model", f"cannot fetch {name}: {why}")) from None


@asynccontextmanager
async def open_session(policy: MediaPolicy) -> AsyncIterator[tuple[aiohttp.ClientSession, AddressGuard]]:
    guard = AddressGuard(private=policy.private)
    connector = aiohttp.TCPConnector(
        ssl=await in_thread(ssl.create_default_context),
        socket_factory=guard,
    )
    async with aiohttp.ClientSession(
        connector=connector,
        # Uncompressed bodies only: a compressed one could expand without limit.
        headers={"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "vmafx"},
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,  # the guard cannot check the connections of a proxy
        timeout=aiohttp.ClientTimeout(
            total=None,
            connect=policy.connect_seconds * 3,  # includes the DNS lookup
            sock_connect=policy.connect_seconds,
            sock_read=policy.stall_seconds,
        ),
        read_bufsize=READ_BUFFER_SIZE,
    ) as session:
        yield session, guard


class HttpUpload:
    """Uploads one body. Follows no redirects: a signed URL is valid for one host only."""

    def __init__(self, session: aiohttp.ClientSession, guard: AddressGuard, location: Location, content: bytes) -> None:
        self._session, self._guard, self._location, self._content = session, guard, location, content
        try:
            self._url = _exact_url(location.target)
        except ValueError:
            raise self._bad("the URL is invalid") from None

    async def send(self) -> None:
        login = _basic_auth(self._url)
        headers = {"Authorization": login} if login else {}
        url = self._url.with_user(None) if login else self._url
        self._guard.reset()
        try:
            async with self._session.put(url, data=self._content, headers=headers, allow_redirects=False) as response:
                self._accept(response)
        except (aiohttp.InvalidURL, UnicodeError):
            raise self._bad("the URL is invalid") from None
        except _NETWORK_ERRORS as error:
            raise _translated(error, self._guard, self._bad) from None

    def _accept(self, response: aiohttp.ClientResponse) -> None:
        if response.status >= 500 or response.status in _RETRYABLE:
            raise TransferInterrupted(
                f"the server answered {response.status}", retry_after(response.headers.get("Retry-After", ""))
            )
        if not 200 <= response.status < 300:
            raise self._bad(
                f"the server answered {response.status}; check the URL, and whether its signature has expired"
            )

    def _bad(self, why: str) -> BadInput:
        return BadInput("options", f"cannot write {self._location.display_name}: {why}")


class HttpDownload:
    """Downloads one clip. A request resumes the previous one only if the file has not changed."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        guard: AddressGuard,
        location: Location,
        staging: StagedFile,
        request: DownloadRequest | None = None,
    ) -> None:
        self._session, self._guard, self._location, self._staging = session, guard, location, staging
        self._wanted = request or DownloadRequest()
        self._version = ""  # ETag or Last-Modified of the file; empty if it cannot be resumed
        try:
            self._url = _exact_url(location.target)
        except ValueError:
            raise self._bad("the URL is invalid") from None

    async def resume(self) -> None:
        if not self._version:
            await self._staging.start_over()
        try:
            async with self._request() as response:
                await self._accept(response)
                await self._receive(response)
        except (aiohttp.InvalidURL, UnicodeError):  # a host name that cannot be encoded
            raise self._bad("the URL is invalid") from None
        except _NETWORK_ERRORS as error:
            raise _translated(error, self._guard, self._bad) from None

    @asynccontextmanager
    async def _request(self) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response after all redirects."""
        url, login = self._url, self._wanted.login or _basic_auth(self._url)
        headers = {"Accept": self._wanted.accept}
        if self._staging.size:
            headers |= {"Range": f"bytes={self._staging.size}-", "If-Range": self._version}
        for _ in range(MAX_REDIRECTS + 1):
            self._guard.reset()
            authorization = {"Authorization": login} if login else {}
            target = url.with_user(None) if url.raw_user or url.raw_password else url
            async with self._session.get(target, headers=headers | authorization, allow_redirects=False) as response:
                if response.status not in _REDIRECTS:
                    yield response
                    return
                redirect = self._redirect_target(url, response.headers.get("Location", ""))
            login = _basic_auth(redirect) or (login if redirect.origin() == url.origin() else None)
            url = redirect
        raise self._bad(f"more than {MAX_REDIRECTS} redirects")

    def _redirect_target(self, url: URL, header: str) -> URL:
        """The URL of a Location header, if it is allowed."""
        try:
            target = url.join(_exact_url(header))
            host = target.host
        except ValueError:
            raise self._bad("it redirects to an invalid URL") from None
        allowed = self._wanted.redirects or {"http", "https"} & self._staging.policy.schemes
        if not header or target.scheme not in allowed or not host:
            name = display_name(str(target)) if header else "an empty URL"
            raise self._bad(f"it redirects to {name}, which is not allowed")
        if url.scheme == "https" and target.scheme == "http":
            raise self._bad("it redirects from https to http, which is not secure; use a URL that stays on https")
        return target

    async def _accept(self, response: aiohttp.ClientResponse) -> None:
        """Decides by the response's headers whether to resume, to start over or to fail."""
        staging = self._staging
        match response.status:
            case 200:
                await staging.start_over()
                self._version = _version(response)
                staging.expect(response.content_length)
            case 206 if self._resumes(response):
                pass
            case 206 | 416:
                self._version = ""
                raise TransferInterrupted("the server did not resume the download")
            case 401 | 403:
                raise self._bad(f"the server answered {response.status}, permission denied; {self._wanted.denied}")
            case 404 | 410:
                raise self._bad(f"the server answered {response.status}, file not found; check the URL")
            case status if status >= 500 or status in _RETRYABLE:
                raise TransferInterrupted(
                    f"the server answered {status}", retry_after(response.headers.get("Retry-After", ""))
                )
            case status:
                raise self._bad(f"the server answered {status} and sent no file; check the URL")
        if (coding := response.headers.get("Content-Encoding", "identity").strip().lower()) not in {"", "identity"}:
            named = coding if coding in {"gzip", "br", "deflate", "zstd"} else "unknown"
            raise self._bad(f"the server sent it compressed ({named}); serve the file without Content-Encoding")

    def _resumes(self, response: aiohttp.ClientResponse) -> bool:
        """Whether a partial response continues the staged file."""
        found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
        if found is None or int(found[1]) != self._staging.size or not self._staging.size:
            return False
        versions = {response.headers.get("ETag"), response.headers.get("Last-Modified")} - {None}
        if versions and self._version not in versions:
            return False
        if self._staging.total is None and found[3] != "*":
            self._staging.expect(int(found[3]))
        return found[3] in {"*", str(self._staging.total)}

    async def _receive(self, response: aiohttp.ClientResponse) -> None:
        """Adds the body to the staged file. Each block has a time limit, which excludes writing to the disk."""
        staging, timeout = self._staging, self._staging.policy.block_seconds
        clock = asyncio.get_running_loop().time
        block = bytearray()
        try:
            async with asyncio.timeout(timeout) as limit:
                async for chunk in response.content.iter_any():
                    block += chunk
                    if len(block) >= BLOCK_SIZE:
                        full, block = block, bytearray()
                        limit.reschedule(None)
                        await staging.add(full)
                        limit.reschedule(clock() + timeout)
        except _NETWORK_ERRORS:
            await staging.add(block)  # kept for the next request
            raise
        await staging.add(block)
        if staging.total is not None and staging.size != staging.total:
            if staging.size > staging.total:
                self._version = ""
            raise TransferInterrupted("the server sent more or fewer bytes than announced")

    def _bad(self, why: str) -> BadInput:
        return BadInput(self._staging.part, f"cannot fetch {self._location.display_name}: {why}")


def _translated(error: Exception, guard: AddressGuard, bad: Callable[[str], BadInput]) -> Exception:
    if guard.refused and isinstance(error, aiohttp.ClientConnectorError):
        refusal = bad(
            "it resolves or redirects to a private, loopback or link-local address;"
            " set VMAFX_MEDIA_ALLOW_PRIVATE=true to allow that"
        )
        refusal.remedy = "for this command only, use --allow-private"
        return refusal
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return NodeFault(bad("the server's TLS certificate is not trusted on this machine").why)
    return TransferInterrupted(
        next((reason for kind, reason in _REASONS if isinstance(error, kind)), "the connection was lost")
    )


def _exact_url(text: str) -> URL:
    """Parses a URL without normalizing it, since signatures cover its exact characters."""
    return URL(text, encoded=_SENDABLE.fullmatch(text) is not None)


def _basic_auth(url: URL) -> str | None:
    if url.raw_user is None and url.raw_password is None:
        return None
    return "Basic " + base64.b64encode(f"{url.user or ''}:{url.password or ''}".encode()).decode()


def _version(response: aiohttp.ClientResponse) -> str:
    """The value for If-Range: the ETag unless it is weak, which does not guarantee identical bytes."""
    etag = response.headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else response.headers.get("Last-Modified", "")
