"""Who we are to the server: nobody, a token, a token file that is rotated, or a plugin that hands out either.

A client certificate shows itself when the connection is made: it belongs to the TLS context (kubeconfig.py).
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from vmafx.kube.errors import ConfigError

REREAD_INTERVAL = 60.0  # seconds; a kubelet renews a mounted token long before it expires


class Credentials(Protocol):
    """Gives the Authorization header; another one, if it can, than one that the server has `refused`."""

    async def header(self, refused: str | None = None) -> str | None: ...

    def why_refused(self) -> str: ...


class Anonymous:
    """Nobody in particular."""

    async def header(self, refused: str | None = None) -> str | None:
        return None

    def why_refused(self) -> str:
        return "there are none"


class ClientCertificate(Anonymous):
    """Who we are is settled when the connection is made; here is only what to say when that did not do."""

    def __init__(self, pem: bytes) -> None:
        self._pem = pem

    def why_refused(self) -> str:
        # Heavy, and needed only now that all is lost anyway.
        from cryptography import x509  # noqa: PLC0415

        ends = x509.load_pem_x509_certificate(self._pem).not_valid_after_utc
        if is_expired(ends):
            return f"the client certificate expired at {ends:%Y-%m-%d %H:%M:%SZ}"
        return "the client certificate is not one this server knows"


class StaticToken:
    """A token, or a user name with a password, written into the kubeconfig."""

    def __init__(self, value: str, scheme: str = "Bearer") -> None:
        self._value, self._scheme = value, scheme

    async def header(self, refused: str | None = None) -> str | None:
        return f"{self._scheme} {self._value}"

    def why_refused(self) -> str:
        return token_trouble(self._value)


def basic(user: str, password: str) -> StaticToken:
    """A user name with a password."""
    return StaticToken(base64.b64encode(f"{user}:{password}".encode()).decode(), "Basic")


class TokenFile:
    """A token in a file that somebody else renews."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._token = ""
        self._read_at = float("-inf")

    async def header(self, refused: str | None = None) -> str | None:
        if refused is not None or self._clock() - self._read_at > REREAD_INTERVAL:
            try:
                self._token = self._path.read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"cannot read the token file {self._path}: {error}") from error
            self._read_at = self._clock()
        return f"Bearer {self._token}"

    def why_refused(self) -> str:
        return f"{token_trouble(self._token)} (from {self._path})"


Fetch = Callable[[], Awaitable[tuple[str, datetime | None]]]


class FetchedToken:
    """A token from an exec plugin or an OIDC provider, kept until it expires or is refused."""

    def __init__(self, fetch: Fetch, source: str) -> None:
        self._fetch, self._source = fetch, source
        self._token = ""
        self._expires: datetime | None = None
        self._one_at_a_time = asyncio.Lock()

    async def header(self, refused: str | None = None) -> str | None:
        async with self._one_at_a_time:
            # Of many calls that were refused with one token, the first renews it, and the others find it renewed.
            if not self._token or is_expired(self._expires) or refused == f"Bearer {self._token}":
                self._token, self._expires = await self._fetch()
        return f"Bearer {self._token}"

    def why_refused(self) -> str:
        return f"{token_trouble(self._token)} (from {self._source})"


class _Claims(msgspec.Struct):
    exp: float | None = None


def token_expiry(token: str) -> datetime | None:
    """When a JWT expires; None for one that does not, or for a token of another kind."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        payload = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = msgspec.json.decode(payload, type=_Claims)
        return None if claims.exp is None else datetime.fromtimestamp(claims.exp, UTC)
    except (binascii.Error, msgspec.DecodeError, OverflowError, OSError, ValueError):
        return None


def is_expired(expiry: datetime | None) -> bool:
    return expiry is not None and expiry <= datetime.now(UTC)


def token_trouble(token: str) -> str:
    """What is probably wrong with a token that was refused; never the token itself."""
    expiry = token_expiry(token)
    if expiry is not None and is_expired(expiry):
        return f"the token expired at {expiry:%Y-%m-%d %H:%M:%SZ}"
    return "the token is unknown to the server, or was revoked"
