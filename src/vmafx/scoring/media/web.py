"""Clips from http and https.

Our own downloader: fsspec's has no resume, no bound on a body without end, and no guard over the addresses it calls.
The only place here that knows aiohttp. Its errors show URLs with their queries, so none of their words is passed on.
"""

import asyncio
import base64
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
from yarl import URL

from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.media.address_guard import AddressGuard
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.retry import TransferInterrupted, retry_after, retry_transfer
from vmafx.scoring.media.staging import StagedFile
from vmafx.scoring.media.uri import Location, shown
from vmafx.tasks import in_thread

MAX_REDIRECTS = 5
BLOCK_SIZE = 1 << 20
READ_AHEAD = 1 << 17  # aiohttp forgets what it holds when a connection breaks: little, so that little is fetched twice
_NETWORK = (aiohttp.ClientError, TimeoutError, OSError)
_REDIRECT = {301, 302, 303, 307, 308}
_LATER = {408, 425, 429}
_SENDABLE = re.compile(r"[!-~]*")
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18}|\*)")

_WORDS: tuple[tuple[type[Exception], str], ...] = (  # the first that fits
    (aiohttp.ClientConnectorDNSError, "the name of its host cannot be resolved"),
    (aiohttp.ClientConnectorSSLError, "no connection: TLS failed"),
    (aiohttp.ClientConnectorError, "no connection: refused, or no way there"),
    (aiohttp.ConnectionTimeoutError, "no connection in time"),
    (aiohttp.ServerTimeoutError, "nothing came for too long"),
    (TimeoutError, "it comes too slowly"),
    (aiohttp.ClientResponseError, "the answer is no HTTP"),
)


async def fetch(place: Location, staging: StagedFile) -> None:
    async with _session(staging.policy) as (session, guard):
        download = HttpDownload(session, guard, place, staging)
        complaint = f"cannot fetch {place.shown}"
        await retry_transfer(download.go_on, lambda: staging.size, staging.policy.retry, complaint)


async def put(place: Location, content: bytes, policy: MediaPolicy) -> None:
    """Send it whole, and again if it may not have arrived: a second PUT changes nothing."""
    async with _session(policy) as (session, guard):
        upload = HttpUpload(session, guard, place, content)
        await retry_transfer(upload.go_on, lambda: 0, policy.retry, f"cannot write {place.shown}")


@asynccontextmanager
async def _session(policy: MediaPolicy) -> AsyncIterator[tuple[aiohttp.ClientSession, AddressGuard]]:
    guard = AddressGuard(private=policy.private)
    connector = aiohttp.TCPConnector(
        ssl=await in_thread(ssl.create_default_context),
        socket_factory=guard,
    )
    async with aiohttp.ClientSession(
        connector=connector,
        # A body that comes as it is cannot grow when unpacked.
        headers={"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": "vmafx"},
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,  # a proxy would connect where the guard cannot see
        timeout=aiohttp.ClientTimeout(
            total=None,
            connect=policy.connect_seconds * 3,  # with the look-up of the name
            sock_connect=policy.connect_seconds,
            sock_read=policy.stall_seconds,
        ),
        read_bufsize=READ_AHEAD,
    ) as session:
        yield session, guard


class HttpUpload:
    """One body. No redirects: what was signed for one place is for no other."""

    def __init__(self, session: aiohttp.ClientSession, guard: AddressGuard, place: Location, content: bytes) -> None:
        self._session, self._guard, self._place, self._content = session, guard, place, content
        try:
            self._url = _exact(place.target)
        except ValueError:
            raise self._bad("the URL makes no sense") from None

    async def go_on(self) -> None:
        login = _login(self._url)
        headers = {"Authorization": login} if login else {}
        url = self._url.with_user(None) if login else self._url
        self._guard.begin()
        try:
            async with self._session.put(url, data=self._content, headers=headers, allow_redirects=False) as answer:
                self._accept(answer)
        except (aiohttp.InvalidURL, UnicodeError):
            raise self._bad("the URL makes no sense") from None
        except _NETWORK as error:
            raise _failed(error, self._guard, self._bad) from None

    def _accept(self, answer: aiohttp.ClientResponse) -> None:
        if answer.status >= 500 or answer.status in _LATER:
            raise TransferInterrupted(
                f"the server says {answer.status}", retry_after(answer.headers.get("Retry-After", ""))
            )
        if not 200 <= answer.status < 300:
            raise self._bad(f"the server says {answer.status}; check the URL, and whether its signature has expired")

    def _bad(self, why: str) -> BadInput:
        return BadInput("options", f"cannot write {self._place.shown}: {why}")


class HttpDownload:
    """One clip, over as many requests as it takes. A request goes on only in the very file that the last one sent."""

    def __init__(
        self, session: aiohttp.ClientSession, guard: AddressGuard, place: Location, staging: StagedFile
    ) -> None:
        self._session, self._guard, self._place, self._staging = session, guard, place, staging
        self._version = ""  # what tells this file from another under the same URL: an ETag or a date
        try:
            self._url = _exact(place.target)
        except ValueError:
            raise self._bad("the URL makes no sense") from None

    async def go_on(self) -> None:
        if not self._version:
            await self._staging.start_over()
        try:
            async with self._answer() as answer:
                await self._accept(answer)
                await self._take(answer)
        except (aiohttp.InvalidURL, UnicodeError):  # a host name that cannot be encoded
            raise self._bad("the URL makes no sense") from None
        except _NETWORK as error:
            raise _failed(error, self._guard, self._bad) from None

    @asynccontextmanager
    async def _answer(self) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer at the end of all redirects."""
        url, login = self._url, _login(self._url)
        headers = {"Range": f"bytes={self._staging.size}-", "If-Range": self._version} if self._staging.size else {}
        for _ in range(MAX_REDIRECTS + 1):
            self._guard.begin()
            authorization = {"Authorization": login} if login else {}
            target = url.with_user(None) if url.raw_user or url.raw_password else url
            async with self._session.get(target, headers=headers | authorization, allow_redirects=False) as answer:
                if answer.status not in _REDIRECT:
                    yield answer
                    return
                onward = self._redirect(url, answer.headers.get("Location", ""))
            login = _login(onward) or (login if onward.origin() == url.origin() else None)
            url = onward
        raise self._bad(f"more than {MAX_REDIRECTS} redirects")

    def _redirect(self, url: URL, location: str) -> URL:
        try:
            onward = url.join(_exact(location))
            host = onward.host
        except ValueError:
            raise self._bad("it redirects to a URL that makes no sense") from None
        if not location or onward.scheme not in {"http", "https"} & self._staging.policy.schemes or not host:
            raise self._bad(f"it redirects to {shown(str(onward)) if location else 'nowhere'}, which is not allowed")
        if url.scheme == "https" and onward.scheme == "http":
            raise self._bad("it redirects from https to http, where anybody can change what is sent")
        return onward

    async def _accept(self, answer: aiohttp.ClientResponse) -> None:
        """Go on with what was staged, start over, or refuse, by what the head of the answer says."""
        staging = self._staging
        match answer.status:
            case 200:
                await staging.start_over()
                self._version = _version(answer)
                staging.expect(answer.content_length)
            case 206 if self._goes_on(answer):
                pass
            case 206 | 416:
                self._version = ""
                raise TransferInterrupted("the server does not go on where it broke off")
            case 401 | 403:
                cure = "check the user and password in the URL, or whether its signature has expired"
                raise self._bad(f"the server says {answer.status}, no permission; {cure}")
            case 404 | 410:
                raise self._bad(f"the server says {answer.status}, there is no such file; check the URL")
            case status if status >= 500 or status in _LATER:
                raise TransferInterrupted(
                    f"the server says {status}", retry_after(answer.headers.get("Retry-After", ""))
                )
            case status:
                raise self._bad(f"the server says {status} and sends no file; check the URL")
        if (coding := answer.headers.get("Content-Encoding", "identity").strip().lower()) not in {"", "identity"}:
            named = coding if coding in {"gzip", "br", "deflate", "zstd"} else "unknown"
            raise self._bad(f"it comes compressed ({named}), which was not asked for; serve the file as it is")

    def _goes_on(self, answer: aiohttp.ClientResponse) -> bool:
        found = _RANGE.fullmatch(answer.headers.get("Content-Range", "").strip())
        if found is None or int(found[1]) != self._staging.size or not self._staging.size:
            return False
        said = {answer.headers.get("ETag"), answer.headers.get("Last-Modified")} - {None}
        if said and self._version not in said:
            return False
        if self._staging.total is None and found[3] != "*":
            self._staging.expect(int(found[3]))
        return found[3] in {"*", str(self._staging.total)}

    async def _take(self, answer: aiohttp.ClientResponse) -> None:
        staging, patience = self._staging, self._staging.policy.block_seconds
        clock = asyncio.get_running_loop().time
        block = bytearray()
        try:
            async with asyncio.timeout(patience) as limit:
                async for chunk in answer.content.iter_any():
                    block += chunk
                    if len(block) >= BLOCK_SIZE:
                        full, block = block, bytearray()
                        limit.reschedule(None)  # the disk's time is not the server's
                        await staging.add(full)
                        limit.reschedule(clock() + patience)
        except _NETWORK:
            await staging.add(block)  # what came is kept, to go on from there
            raise
        await staging.add(block)
        if staging.total is not None and staging.size != staging.total:
            if staging.size > staging.total:
                self._version = ""
            raise TransferInterrupted("the server sent another number of bytes than it said")

    def _bad(self, why: str) -> BadInput:
        return BadInput(self._staging.part, f"cannot fetch {self._place.shown}: {why}")


def _failed(error: Exception, guard: AddressGuard, bad: Callable[[str], BadInput]) -> Exception:
    if guard.refused and isinstance(error, aiohttp.ClientConnectorError):
        refusal = bad("it leads to an address that is not public; VMAFX_MEDIA_ALLOW_PRIVATE=true allows that")
        refusal.remedy = "for this run alone, use --allow-private"
        return refusal
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return NodeFault(bad("the server's certificate is not trusted here").why)
    return TransferInterrupted(
        next((words for kind, words in _WORDS if isinstance(error, kind)), "the connection broke")
    )


def _exact(text: str) -> URL:
    """What can be sent as it is stays as it is, since signatures are made over the very characters."""
    return URL(text, encoded=_SENDABLE.fullmatch(text) is not None)


def _login(url: URL) -> str | None:
    if url.raw_user is None and url.raw_password is None:
        return None
    return "Basic " + base64.b64encode(f"{url.user or ''}:{url.password or ''}".encode()).decode()


def _version(answer: aiohttp.ClientResponse) -> str:
    """What to put into If-Range. A weak ETag says that files are alike, not that they are the same."""
    etag = answer.headers.get("ETag", "")
    return etag if etag and not etag.startswith("W/") else answer.headers.get("Last-Modified", "")
