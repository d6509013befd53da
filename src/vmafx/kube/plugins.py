"""Tokens from an exec plugin or an OIDC provider, within a timeout.

The official client is not used for this: it waits forever for an exec plugin and deadlocks if the plugin writes much
to stderr, it does not verify the certificate of an OIDC provider, and it takes 55 MiB to import.
"""

import asyncio
import base64
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from vmafx.kube import tls
from vmafx.kube.connect import API_SERVER_LOOKUPS
from vmafx.kube.credentials import TokenFetcher, basic, is_expired, token_expiry
from vmafx.kube.errors import ConfigError
from vmafx.kube.fetch import fetch
from vmafx.kube.http1 import HttpResponse

PLUGIN_TIMEOUT = 60.0


class ExecVariable(msgspec.Struct):
    name: str
    value: str


class ExecPlugin(msgspec.Struct):
    """The `exec` section of a kubeconfig's user."""

    apiVersion: str
    command: str
    args: list[str] | None = None
    env: list[ExecVariable] | None = None
    installHint: str = ""
    provideClusterInfo: bool = False


class _ExecStatus(msgspec.Struct):
    token: str = ""
    expirationTimestamp: datetime | None = None


class _ExecCredential(msgspec.Struct):
    apiVersion: str
    status: _ExecStatus


def exec_token(plugin: ExecPlugin, folder: Path, cluster: Mapping[str, Any], origin: str) -> TokenFetcher:
    """A fetcher that runs an exec plugin for a token."""
    # As in kubectl, a command with a slash is relative to the kubeconfig, and one without is searched in PATH.
    command = str(folder / plugin.command) if "/" in plugin.command else plugin.command
    spec = {"interactive": False, **({"cluster": cluster} if plugin.provideClusterInfo else {})}
    info = {"apiVersion": plugin.apiVersion, "kind": "ExecCredential", "spec": spec}
    environment = {
        **os.environ,
        **{variable.name: variable.value for variable in plugin.env or ()},
        "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
    }
    label = f"{origin}: exec plugin {plugin.command}"
    hint = f"; {_one_line(plugin.installHint)}" if plugin.installHint else ""

    async def fetch() -> tuple[str, datetime | None]:
        output = await _run([command, *(plugin.args or ())], environment, label, hint)
        try:
            credential = msgspec.json.decode(output, type=_ExecCredential)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{label} did not print an ExecCredential: {error}") from error
        if credential.apiVersion != plugin.apiVersion:
            raise ConfigError(f"{label} uses apiVersion {credential.apiVersion}, not {plugin.apiVersion}")
        if not credential.status.token:
            raise ConfigError(f"{label} returned no token (client certificates are not supported)")
        expires = credential.status.expirationTimestamp
        return credential.status.token, expires.replace(tzinfo=expires.tzinfo or UTC) if expires else None

    return fetch


async def _run(command: list[str], environment: dict[str, str], label: str, hint: str) -> bytes:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise ConfigError(f"{label} cannot be started: {error.strerror}{hint}") from error
    try:
        async with asyncio.timeout(PLUGIN_TIMEOUT):
            stdout, stderr = await process.communicate()
    except TimeoutError as error:
        raise ConfigError(f"{label} did not finish within {PLUGIN_TIMEOUT:.0f} s{hint}") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ConfigError(
            f"{label} failed with exit code {process.returncode}: "
            f"{_one_line(stderr.decode(errors='replace'))[-300:]}{hint}"
        )
    return stdout


class OidcConfig(msgspec.Struct, rename="kebab"):
    """The `config` of a kubeconfig's auth-provider `oidc`."""

    client_id: str
    idp_issuer_url: str
    client_secret: str = ""
    id_token: str = ""
    refresh_token: str = ""
    idp_certificate_authority: str | None = None
    idp_certificate_authority_data: str | None = None


class _ProviderMetadata(msgspec.Struct):
    token_endpoint: str


class _TokenResponse(msgspec.Struct):
    id_token: str
    refresh_token: str = ""


class OidcTokens:
    """The id-token from the kubeconfig until it expires, then refreshed ones from the provider."""

    def __init__(self, settings: OidcConfig, folder: Path, origin: str) -> None:
        self._settings, self._origin = settings, origin
        self._id_token, self._refresh_token = settings.id_token, settings.refresh_token
        self._tls = tls.trust_context(_provider_authority(settings, folder, origin), origin)

    async def fetch(self) -> tuple[str, datetime | None]:
        token, self._id_token = self._id_token, ""
        if token and not is_expired(token_expiry(token)):
            return token, token_expiry(token)
        if not self._refresh_token:
            raise ConfigError(f"{self._origin}: the id-token has expired and there is no refresh-token; log in again")
        try:
            async with asyncio.timeout(PLUGIN_TIMEOUT):
                refreshed = await self._refresh()
        except (OSError, ValueError, msgspec.DecodeError) as error:  # TimeoutError is an OSError
            reason = _one_line(error) or "no response in time"
            issuer = self._settings.idp_issuer_url
            raise ConfigError(f"{self._origin}: cannot refresh the token at {issuer}: {reason}") from error
        self._refresh_token = refreshed.refresh_token or self._refresh_token
        return refreshed.id_token, token_expiry(refreshed.id_token)

    async def _refresh(self) -> _TokenResponse:
        settings = self._settings
        discovery = f"{settings.idp_issuer_url.rstrip('/')}/.well-known/openid-configuration"
        metadata = msgspec.json.decode(
            _body(await fetch(discovery, trust=self._tls, lookups=API_SERVER_LOOKUPS)), type=_ProviderMetadata
        )
        if not metadata.token_endpoint.startswith("https://"):
            raise ValueError("the token endpoint is not an https URL")
        form = {"grant_type": "refresh_token", "refresh_token": self._refresh_token}
        headers = {
            "Authorization": await basic(settings.client_id, settings.client_secret).header() or "",
            "Content-Type": "application/x-www-form-urlencoded",
        }
        response = await fetch(
            metadata.token_endpoint,
            trust=self._tls,
            method="POST",
            headers=headers,
            body=urlencode(form).encode(),
            lookups=API_SERVER_LOOKUPS,
        )
        return msgspec.json.decode(_body(response), type=_TokenResponse)


def _provider_authority(settings: OidcConfig, folder: Path, origin: str) -> bytes | None:
    try:
        if settings.idp_certificate_authority_data:
            return base64.b64decode(settings.idp_certificate_authority_data, validate=True)
        if settings.idp_certificate_authority:
            return (folder / settings.idp_certificate_authority).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{origin}: cannot read idp-certificate-authority: {error}") from error
    return None


def _body(response: HttpResponse) -> bytes:
    if response.status != 200:
        raise ValueError(f"the provider responded with status {response.status}")
    return response.body


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
