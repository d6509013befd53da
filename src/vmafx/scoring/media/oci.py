"""Models in an OCI registry, by digest. The registry may be hostile: sizes are limited and digests are verified.

Requests go the way of other downloads (web.py), with its checks of addresses and redirects. oras-py, with which
trainers push, has neither, nor timeouts.
"""

import os
import re
from urllib.parse import urlencode

import aiohttp
import msgspec

from vmafx.scoring.artifact import MANIFEST_TYPE, MAX_MANIFEST_BYTES, decode_manifest
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media import web
from vmafx.scoring.media.address_guard import AddressGuard
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.registries import Reference, RegistryLogin, find_credentials, url_of
from vmafx.scoring.media.retry import retry_transfer
from vmafx.scoring.media.staging import StagedFile
from vmafx.scoring.media.uri import Location
from vmafx.tasks import in_thread

MAX_TOKEN_BYTES = 64 << 10
_CHALLENGE = re.compile(r'([a-z]+)="([^"]{0,1024})"')


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""


async def fetch(location: Location, staging: StagedFile) -> None:
    """Fetch the model that the reference names. Raises BadInput, NodeFault."""
    if staging.part != "model":
        raise BadInput(staging.part, f"{location.display_name} names a model; clips cannot be in an OCI registry")
    async with web.open_session(staging.policy) as (session, guard):
        await _Pull(session, guard, location, staging).run()


async def put(location: Location, _content: bytes, _policy: MediaPolicy) -> None:
    raise BadInput("options", f"a report cannot be written to an OCI registry: {location.display_name}")


class _Pull:
    """The requests for one model."""

    def __init__(
        self, session: aiohttp.ClientSession, guard: AddressGuard, location: Location, staging: StagedFile
    ) -> None:
        self._session, self._guard, self._location, self._staging = session, guard, location, staging
        self._reference = Reference.of(location)
        self._registry = url_of(self._reference.registry, staging.policy.insecure_registries)
        self._scheme = self._registry.partition(":")[0]
        self._repository = f"{self._registry}/v2/{self._reference.repository}"

    async def run(self) -> None:
        policy, digest = self._staging.policy, self._reference.digest
        credentials = await in_thread(find_credentials, self._reference.registry, policy.docker_config)
        login = await self._authenticate(credentials)
        manifest_url = f"{self._repository}/manifests/{digest}"
        content, found = await self._read(manifest_url, MAX_MANIFEST_BYTES, login, MANIFEST_TYPE)
        if f"sha256:{found}" != digest:
            raise self._bad("the registry sent a manifest with another digest")
        (layer,) = decode_manifest(content, self._location.display_name).layers
        await self._download(f"{self._repository}/blobs/{layer.digest}", self._staging, login)
        if (f"sha256:{self._staging.digest}", self._staging.size) != (layer.digest, layer.size):
            raise self._bad("the registry sent a model with another digest or size than its manifest says")

    async def _authenticate(self, credentials: RegistryLogin | None) -> str | None:
        """The Authorization header that the registry asks for."""
        challenge = ""

        async def ask() -> None:
            nonlocal challenge
            url, name = f"{self._registry}/v2/", self._location.display_name
            challenge = await web.read_challenge(self._session, self._guard, url, name)

        await retry_transfer(ask, lambda: 0, self._staging.policy.retry, f"cannot fetch {self._location.display_name}")
        kind, _, rest = challenge.partition(" ")
        match kind.lower():
            case "basic":
                return credentials.basic() if credentials else None
            case "bearer":
                return await self._request_token(dict(_CHALLENGE.findall(rest)), credentials)
            case _:
                return None

    async def _request_token(self, challenge: dict[str, str], credentials: RegistryLogin | None) -> str | None:
        realm = challenge.get("realm", "")
        if not realm.startswith(("https://", f"{self._scheme}://")):
            raise self._bad("the registry asks to send credentials without TLS")
        scope = f"repository:{self._reference.repository}:pull"
        query = urlencode({"service": challenge.get("service", ""), "scope": scope})
        url = f"{realm}{'&' if '?' in realm else '?'}{query}"
        content, _ = await self._read(url, MAX_TOKEN_BYTES, credentials.basic() if credentials else None)
        try:
            answer = msgspec.json.decode(content, type=_Token)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise self._bad("the registry's authorization service sent no token") from None
        token = answer.token or answer.access_token
        return f"Bearer {token}" if token.isascii() and token.isprintable() and token else None

    async def _read(self, url: str, limit: int, login: str | None, accept: str = "*/*") -> tuple[bytes, str]:
        """A small body and its SHA-256."""
        limited = msgspec.structs.replace(self._staging.policy, max_bytes=limit)
        staging = StagedFile(self._location.display_name, "model", limited)
        with staging:
            await self._download(url, staging, login, accept)
            return os.pread(staging.seal(), limit, 0), staging.digest

    async def _download(self, url: str, staging: StagedFile, login: str | None, accept: str = "*/*") -> None:
        location = Location("oci", url, self._location.display_name)
        request = web.DownloadRequest(
            login=login,
            accept=accept,
            redirects=frozenset({"https", self._scheme}),
            denied="check the credentials for the registry in the config.json that DOCKER_CONFIG names",
        )
        download = web.HttpDownload(self._session, self._guard, location, staging, request)
        action = f"cannot fetch {location.display_name}"
        await retry_transfer(download.resume, lambda: staging.size, staging.policy.retry, action)

    def _bad(self, why: str) -> BadInput:
        return BadInput("model", f"cannot fetch {self._location.display_name}: {why}")
