"""Tokens from an exec plugin or an OIDC provider, always within a time limit.

By our own hands and not by the official client: its exec waits for ever and blocks on a talkative plugin, its OIDC does
not check the provider's certificate, and it takes 55 MiB to import.
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
from vmafx.kube.credentials import Fetch, basic, is_expired, token_expiry
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


def exec_token(plugin: ExecPlugin, folder: Path, cluster: Mapping[str, Any], origin: str) -> Fetch:
    """Run the plugin and take its token."""
    # As kubectl has it: a command with a slash is relative to the kubeconfig, one without is looked for in PATH.
    command = str(folder / plugin.command) if "/" in plugin.command else plugin.command
    spec = {"interactive": False, **({"cluster": cluster} if plugin.provideClusterInfo else {})}
    info = {"apiVersion": plugin.apiVersion, "kind": "ExecCredential", "spec": spec}
    environment = {
        **os.environ,
        **{one.name: one.value for one in plugin.env or ()},
        "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
    }
    hint = f"; {_one_line(plugin.installHint)}" if plugin.installHint else ""

    async def fetch() -> tuple[str, datetime | None]:
        said = await _run([command, *(plugin.args or ())], environment, f"{origin}: exec plugin {plugin.command}", hint)
        try:
            credential = msgspec.json.decode(said, type=_ExecCredential)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{origin}: exec plugin {plugin.command} gave no ExecCredential: {error}") from error
        if credential.apiVersion != plugin.apiVersion:
            wanted = f"{credential.apiVersion}, not {plugin.apiVersion}"
            raise ConfigError(f"{origin}: exec plugin {plugin.command} speaks {wanted}")
        if not credential.status.token:
            missing = "gave no token (client certificates from it are not taken)"
            raise ConfigError(f"{origin}: exec plugin {plugin.command} {missing}")
        expires = credential.status.expirationTimestamp
        return credential.status.token, expires.replace(tzinfo=expires.tzinfo or UTC) if expires else None

    return fetch


async def _run(command: list[str], environment: dict[str, str], what: str, hint: str) -> bytes:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise ConfigError(f"{what} cannot be run: {error.strerror}{hint}") from error
    try:
        async with asyncio.timeout(PLUGIN_TIMEOUT):
            out, err = await process.communicate()
    except TimeoutError as error:
        raise ConfigError(f"{what} did not end within {PLUGIN_TIMEOUT:.0f} s{hint}") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ConfigError(
            f"{what} failed ({process.returncode}): {_one_line(err.decode(errors='replace'))[-300:]}{hint}"
        )
    return out


class OidcConfig(msgspec.Struct, rename="kebab"):
    """The `config` of a kubeconfig's auth-provider `oidc`."""

    client_id: str
    idp_issuer_url: str
    client_secret: str = ""
    id_token: str = ""
    refresh_token: str = ""
    idp_certificate_authority: str | None = None
    idp_certificate_authority_data: str | None = None


class _Discovered(msgspec.Struct):
    token_endpoint: str


class _Renewed(msgspec.Struct):
    id_token: str
    refresh_token: str = ""


class OidcTokens:
    """The id-token of the kubeconfig while it lasts, then new ones from the provider."""

    def __init__(self, settings: OidcConfig, folder: Path, origin: str) -> None:
        self._settings, self._origin = settings, origin
        self._given, self._refresh_token = settings.id_token, settings.refresh_token
        self._tls = tls.trust_context(_provider_authority(settings, folder, origin), origin)

    async def fetch(self) -> tuple[str, datetime | None]:
        given, self._given = self._given, ""
        if given and not is_expired(token_expiry(given)):
            return given, token_expiry(given)
        if not self._refresh_token:
            raise ConfigError(f"{self._origin}: the id-token is over and there is no refresh-token; log in again")
        try:
            async with asyncio.timeout(PLUGIN_TIMEOUT):
                renewed = await self._renew()
        except (OSError, ValueError, msgspec.DecodeError) as error:  # TimeoutError is an OSError
            why = _one_line(error) or "no answer in time"
            raise ConfigError(f"{self._origin}: no new token from {self._settings.idp_issuer_url}: {why}") from error
        self._refresh_token = renewed.refresh_token or self._refresh_token
        return renewed.id_token, token_expiry(renewed.id_token)

    async def _renew(self) -> _Renewed:
        settings = self._settings
        form = {"grant_type": "refresh_token", "refresh_token": self._refresh_token}
        us = {"Authorization": await basic(settings.client_id, settings.client_secret).header() or ""}
        well_known = f"{settings.idp_issuer_url.rstrip('/')}/.well-known/openid-configuration"
        answer = _good(await fetch(well_known, trust=self._tls))
        found = msgspec.json.decode(answer, type=_Discovered)
        if not found.token_endpoint.startswith("https://"):
            raise ValueError("its token endpoint is not https")
        us["Content-Type"] = "application/x-www-form-urlencoded"
        asked = fetch(found.token_endpoint, trust=self._tls, method="POST", headers=us, body=urlencode(form).encode())
        return msgspec.json.decode(_good(await asked), type=_Renewed)


def _provider_authority(settings: OidcConfig, folder: Path, origin: str) -> bytes | None:
    try:
        if settings.idp_certificate_authority_data:
            return base64.b64decode(settings.idp_certificate_authority_data, validate=True)
        if settings.idp_certificate_authority:
            return (folder / settings.idp_certificate_authority).read_bytes()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{origin}: idp-certificate-authority cannot be read: {error}") from error
    return None


def _good(answer: HttpResponse) -> bytes:
    if answer.status != 200:
        raise ValueError(f"it says {answer.status}")
    return answer.body


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
