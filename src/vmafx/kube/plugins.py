"""Tokens from exec plugins and OIDC providers, by way of the official client.

Imported only for a kubeconfig that asks for one of them: the official client takes 55 MiB and 0.7 s.
"""

import base64
import ssl
import warnings
from datetime import datetime
from typing import Any

import aiohttp
import msgspec
from kubernetes.aio.config.config_exception import ConfigException
from kubernetes.aio.config.exec_provider import ExecProvider
from kubernetes.aio.config.kube_config import ConfigNode
from kubernetes.aio.config.openid import OpenIDRequestor

from vmafx.kube.credentials import Fetch, is_over, token_expiry
from vmafx.kube.errors import ConfigError


class _ExecStatus(msgspec.Struct):
    token: str = ""
    expirationTimestamp: datetime | None = None


def exec_token(settings: dict[str, Any], origin: str) -> Fetch:
    """Run the plugin and take its token."""

    async def fetch() -> tuple[str, datetime | None]:
        try:
            answer = await ExecProvider(ConfigNode("exec", settings)).run()
            status = msgspec.convert(answer, _ExecStatus)
        except (ConfigException, OSError, msgspec.ValidationError) as error:
            hint = settings.get("installHint")
            raise ConfigError(f"{origin}: {_one_line(error)}{f'; {_one_line(hint)}' if hint else ''}") from error
        if not status.token:
            raise ConfigError(f"{origin}: the exec plugin gave no token (client certificates from it are not taken)")
        return status.token, status.expirationTimestamp

    return fetch


class _Oidc(msgspec.Struct, rename="kebab"):
    client_id: str
    idp_issuer_url: str
    client_secret: str = ""
    id_token: str = ""
    refresh_token: str = ""
    idp_certificate_authority: str | None = None
    idp_certificate_authority_data: str | None = None


class _Renewed(msgspec.Struct):
    id_token: str
    refresh_token: str = ""


def oidc_token(provider: dict[str, Any], origin: str) -> Fetch:
    """Take the id-token of the kubeconfig while it lasts, then ask the provider for new ones."""
    if provider.get("name") != "oidc":
        raise ConfigError(f"{origin}: auth-provider {provider.get('name')!r} is not supported; use exec or oidc")
    try:
        settings = msgspec.convert(provider.get("config") or {}, _Oidc)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{origin}: auth-provider oidc: {error}") from error
    given = [settings.id_token] if settings.id_token else []
    refresh_tokens = [settings.refresh_token]

    async def fetch() -> tuple[str, datetime | None]:
        if given and not is_over(expiry := token_expiry(token := given.pop())):
            return token, expiry
        if not refresh_tokens[-1]:
            raise ConfigError(f"{origin}: the id-token is over and there is no refresh-token; log in again")
        renewed = await _renew(settings, refresh_tokens[-1], origin)
        refresh_tokens[:] = [renewed.refresh_token or refresh_tokens[-1]]
        return renewed.id_token, token_expiry(renewed.id_token)

    return fetch


async def _renew(settings: _Oidc, refresh_token: str, origin: str) -> _Renewed:
    # A TLS context, not a path: without one the official client does not check the provider's certificate.
    requestor = OpenIDRequestor(
        settings.client_id, settings.client_secret, settings.idp_issuer_url, _provider_tls(settings, origin)
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return msgspec.convert(await requestor.refresh_token(refresh_token), _Renewed)
    except (ConfigException, aiohttp.ClientError, OSError, msgspec.ValidationError) as error:
        raise ConfigError(f"{origin}: no new token from {settings.idp_issuer_url}: {_one_line(error)}") from error


def _provider_tls(settings: _Oidc, origin: str) -> ssl.SSLContext:
    data = settings.idp_certificate_authority_data
    try:
        return ssl.create_default_context(
            cafile=settings.idp_certificate_authority, cadata=base64.b64decode(data).decode() if data else None
        )
    except (OSError, ValueError) as error:
        raise ConfigError(f"{origin}: idp-certificate-authority cannot be used: {error}") from error


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
