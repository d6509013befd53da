"""Kubeconfig files, read as kubectl does.

Of several files, the first that sets a value wins. Relative paths are relative to the file that contains them.
"""

import base64
import binascii
import ssl
import time
from pathlib import Path
from typing import Any, Self

import msgspec
from yarl import URL

from vmafx.kube import plugins, tls
from vmafx.kube.credentials import (
    Anonymous,
    ClientCertificate,
    Credentials,
    FetchedToken,
    StaticToken,
    TokenFile,
    basic,
)
from vmafx.kube.errors import ConfigError
from vmafx.kube.plugins import ExecPlugin


class KubeCluster(msgspec.Struct, rename="kebab", kw_only=True):
    server: str
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None


class AuthProvider(msgspec.Struct):
    name: str
    config: dict[str, str] | None = None


class KubeUser(msgspec.Struct, rename="kebab"):
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    username: str | None = None
    password: str | None = None
    exec: ExecPlugin | None = None
    auth_provider: AuthProvider | None = None
    impersonate: str | None = msgspec.field(default=None, name="as")


class KubeContext(msgspec.Struct):
    cluster: str
    user: str | None = None
    namespace: str | None = None


class NamedCluster(msgspec.Struct):
    name: str
    cluster: KubeCluster


class NamedUser(msgspec.Struct):
    name: str
    user: KubeUser


class NamedContext(msgspec.Struct):
    name: str
    context: KubeContext


class _File(msgspec.Struct, rename="kebab"):
    clusters: list[NamedCluster] | None = None
    users: list[NamedUser] | None = None
    contexts: list[NamedContext] | None = None
    current_context: str | None = None


class Kubeconfig:
    """Several kubeconfig files, merged."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths
        self.current = ""
        self.clusters: dict[str, tuple[KubeCluster, Path]] = {}
        self.users: dict[str, tuple[KubeUser, Path]] = {}
        self.contexts: dict[str, KubeContext] = {}

    @classmethod
    def read(cls, paths: list[Path]) -> Self:
        """Read and merge files. A single file must exist; of several, missing ones are skipped, as kubectl does."""
        merged = cls(paths)
        existing = [path for path in paths if path.exists()] if len(paths) > 1 else paths
        if not existing:
            raise ConfigError(f"none of the kubeconfig files exists: {', '.join(map(str, paths))}")
        for path in existing:
            merged._add(_read_file(path), path.parent)
        return merged

    def _add(self, file: _File, folder: Path) -> None:
        self.current = self.current or file.current_context or ""
        for cluster in file.clusters or ():
            self.clusters.setdefault(cluster.name, (cluster.cluster, folder))
        for user in file.users or ():
            self.users.setdefault(user.name, (user.user, folder))
        for context in file.contexts or ():
            self.contexts.setdefault(context.name, context.context)

    def resolve(self, name: str | None) -> "ResolvedContext":
        """The cluster and user of a context, by default of current-context."""
        name = name or self.current
        files = ", ".join(map(str, self.paths))
        if not name:
            raise ConfigError(f"{files} has no current-context; available contexts: {_names(self.contexts)}")
        context = self.contexts.get(name)
        if context is None:
            raise ConfigError(f"{files} has no context {name!r}; available contexts: {_names(self.contexts)}")
        if context.cluster not in self.clusters:
            raise ConfigError(
                f"context {name!r} in {files} refers to cluster {context.cluster!r}, which does not exist"
            )
        if context.user and context.user not in self.users:
            raise ConfigError(f"context {name!r} in {files} refers to user {context.user!r}, which does not exist")
        cluster, cluster_folder = self.clusters[context.cluster]
        user, user_folder = self.users.get(context.user or "", (KubeUser(), Path()))
        return ResolvedContext(cluster, cluster_folder, user, user_folder, context, f"context {name!r} in {files}")


class ResolvedContext:
    """A context with its cluster and user."""

    def __init__(
        self,
        cluster: KubeCluster,
        cluster_folder: Path,
        user: KubeUser,
        user_folder: Path,
        context: KubeContext,
        origin: str,
    ) -> None:
        self._cluster, self._cluster_folder = cluster, cluster_folder
        self._user, self._user_folder = user, user_folder
        self.origin = origin
        self.server = _checked_url(cluster.server, "server", origin)
        self.server_name = cluster.tls_server_name
        self.proxy = _checked_url(cluster.proxy_url, "proxy-url", origin) if cluster.proxy_url else None
        self.namespace = context.namespace or "default"
        if user.impersonate:
            raise ConfigError(f"{origin}: impersonation (`as`) is not supported; use credentials of that user")

    def tls(self) -> ssl.SSLContext:
        """The TLS context: the trusted certificate authority, and the client certificate if there is one."""
        cluster, user = self._cluster, self._user
        authority = self._read_data(
            "certificate-authority",
            cluster.certificate_authority_data,
            cluster.certificate_authority,
            self._cluster_folder,
        )
        context = tls.trust_context(authority, self.origin)
        if cluster.insecure_skip_tls_verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        certificate = self._client_certificate()
        key = self._read_data("client-key", user.client_key_data, user.client_key, self._user_folder)
        if certificate and key:
            tls.load_client_certificate(context, certificate, key, self.origin)
        elif certificate or key:
            raise ConfigError(f"{self.origin}: client-certificate and client-key must be set together")
        return context

    def credentials(self) -> Credentials:
        """The user's credentials, apart from a client certificate, which is part of the TLS context."""
        user = self._user
        if user.exec is not None or user.auth_provider is not None:
            return self._plugin_credentials(user)
        if user.token:
            return StaticToken(user.token.strip())
        if user.token_file:
            return TokenFile(self._user_folder / user.token_file, time.monotonic)
        if user.username is not None:
            return basic(user.username, user.password or "")
        if certificate := self._client_certificate():
            return ClientCertificate(certificate)
        return Anonymous()

    def _plugin_credentials(self, user: KubeUser) -> Credentials:
        if user.exec is not None:
            cluster = msgspec.to_builtins(self._cluster)
            fetch = plugins.exec_token(user.exec, self._user_folder, cluster, self.origin)
            return FetchedToken(fetch, f"the exec plugin of {self.origin}")
        provider = user.auth_provider
        if provider is None or provider.name != "oidc":
            name = provider.name if provider else ""
            raise ConfigError(f"{self.origin}: auth-provider {name!r} is not supported; use exec or oidc")
        try:
            settings = msgspec.convert(provider.config or {}, plugins.OidcConfig)
        except msgspec.ValidationError as error:
            raise ConfigError(f"{self.origin}: auth-provider oidc: {error}") from error
        tokens = plugins.OidcTokens(settings, self._user_folder, self.origin)
        return FetchedToken(tokens.fetch, f"the OIDC provider of {self.origin}")

    def _client_certificate(self) -> bytes | None:
        user = self._user
        return self._read_data(
            "client-certificate", user.client_certificate_data, user.client_certificate, self._user_folder
        )

    def _read_data(self, field: str, data: str | None, path: str | None, folder: Path) -> bytes | None:
        """The content of a field that is given inline (FIELD-data, base64) or as a path."""
        if data:
            try:
                return base64.b64decode(data, validate=True)
            except binascii.Error as error:
                raise ConfigError(f"{self.origin}: {field}-data is not base64: {error}") from error
        if path:
            try:
                return (folder / path).read_bytes()
            except OSError as error:
                raise ConfigError(f"{self.origin}: cannot read {field} {folder / path}: {error.strerror}") from error
        return None


def _checked_url(text: str, field: str, origin: str) -> str:
    try:
        url = URL(text)
        valid = url.scheme in {"https", "http"} and url.host and url.port
    except ValueError:
        valid = None
    if not valid:
        raise ConfigError(f"{origin}: {field} must be a URL such as https://host:6443")
    return text


def _read_file(path: Path) -> _File:
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise ConfigError(f"cannot read the kubeconfig {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is not a valid kubeconfig: {' '.join(str(error).split())}") from error


def _names(entries: dict[str, Any]) -> str:
    return ", ".join(sorted(entries)) or "none"
