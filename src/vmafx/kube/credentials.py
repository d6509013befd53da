"""Credentials: the Authorization header of a request, and the likely reason if the server rejects it.

A client certificate is part of the TLS context instead (kubeconfig.py).
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

REREAD_INTERVAL = 60.0  # seconds; the kubelet rotates a mounted token long before it expires


class Credentials(Protocol):
    """The source of Authorization headers."""

    async def header(self, rejected: str | None = None) -> str | None:
        """The header, if any; different, if possible, from the one that the server has `rejected`."""

    def rejection_reason(self) -> str:
        """The likely reason why the server rejected the header, without secrets."""


class Anonymous:
    """No Authorization header."""

    async def header(self, rejected: str | None = None) -> str | None:
        return None

    def rejection_reason(self) -> str:
        return "there are no credentials"


class ClientCertificate(Anonymous):
    """A client certificate: sent by TLS, so only the reason of a rejection is needed here."""

    def __init__(self, pem: bytes) -> None:
        self._pem = pem

    def rejection_reason(self) -> str:
        # Imported here because it is slow to import and rarely needed.
        from cryptography import x509  # noqa: PLC0415

        expiry = x509.load_pem_x509_certificate(self._pem).not_valid_after_utc
        if is_expired(expiry):
            return f"the client certificate expired at {expiry:%Y-%m-%d %H:%M:%SZ}"
        return "the server does not accept the client certificate"


class StaticToken:
    """A bearer token, or a username and password, from the kubeconfig."""

    def __init__(self, value: str, scheme: str = "Bearer") -> None:
        self._value, self._scheme = value, scheme

    async def header(self, rejected: str | None = None) -> str | None:
        return f"{self._scheme} {self._value}"

    def rejection_reason(self) -> str:
        return token_rejection_reason(self._value)


def basic(user: str, password: str) -> StaticToken:
    """Basic authentication."""
    return StaticToken(base64.b64encode(f"{user}:{password}".encode()).decode(), "Basic")


class TokenFile:
    """A token in a file that is rotated by another process."""

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        self._path, self._clock = path, clock
        self._token = ""
        self._read_at = float("-inf")

    async def header(self, rejected: str | None = None) -> str | None:
        if rejected is not None or self._clock() - self._read_at > REREAD_INTERVAL:
            try:
                self._token = self._path.read_text().strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"cannot read the token file {self._path}: {error}") from error
            self._read_at = self._clock()
        return f"Bearer {self._token}"

    def rejection_reason(self) -> str:
        return f"{token_rejection_reason(self._token)} (from {self._path})"


TokenFetcher = Callable[[], Awaitable[tuple[str, datetime | None]]]


class FetchedToken:
    """A token from an exec plugin or an OIDC provider, kept until it expires or is rejected."""

    def __init__(self, fetch: TokenFetcher, source: str) -> None:
        self._fetch, self._source = fetch, source
        self._token = ""
        self._expires: datetime | None = None
        self._fetch_lock = asyncio.Lock()

    async def header(self, rejected: str | None = None) -> str | None:
        async with self._fetch_lock:
            # If many calls are rejected with the same token, only the first of them fetches a new one.
            if not self._token or is_expired(self._expires) or rejected == f"Bearer {self._token}":
                self._token, self._expires = await self._fetch()
        return f"Bearer {self._token}"

    def rejection_reason(self) -> str:
        return f"{token_rejection_reason(self._token)} (from {self._source})"


class _Claims(msgspec.Struct):
    exp: float | None = None


def token_expiry(token: str) -> datetime | None:
    """The expiry of a JWT; None if it has none, or the token is not a JWT."""
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


def token_rejection_reason(token: str) -> str:
    """The likely reason why the server rejected a token; never contains the token."""
    expiry = token_expiry(token)
    if expiry is not None and is_expired(expiry):
        return f"the token expired at {expiry:%Y-%m-%d %H:%M:%SZ}"
    return "the token is invalid or was revoked"
