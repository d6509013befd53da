"""The client's configuration, looked up in the same order as controller-runtime does.

An explicit kubeconfig, $KUBECONFIG, the service account of the Pod, ~/.kube/config.
"""

import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from yarl import URL

from vmafx.kube.credentials import Anonymous, Credentials, TokenFile, basic
from vmafx.kube.errors import ConfigError
from vmafx.kube.kubeconfig import Kubeconfig
from vmafx.kube.tls import trust_context
from vmafx.settings import Setting, Settings, from_environ

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def _paths(text: str) -> list[Path]:
    return [Path(part) for part in text.split(os.pathsep) if part]


class KubeSettings(Settings):
    """Settings of every command that calls the Kubernetes API."""

    kubeconfig: Annotated[
        list[Path], Setting("Kubeconfig files, merged as kubectl does.", variable="KUBECONFIG", parse=_paths)
    ]


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """An API server, the way to reach it, and the credentials to use."""

    server: str
    tls: ssl.SSLContext | None
    credentials: Credentials = Anonymous()
    namespace: str = "default"
    server_name: str | None = None
    proxy: str | None = None
    proxy_credentials: Credentials = Anonymous()
    origin: str = ""  # the file and context it was read from, for error messages


def load_config(
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Config:
    """Load the configuration; raises ConfigError with all searched places if there is none."""
    if kubeconfig:
        return _from_kubeconfig([Path(kubeconfig)], context)
    if listed := from_environ(KubeSettings, environ).kubeconfig:
        return _from_kubeconfig(listed, context)
    if environ.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists():
        return _in_cluster(environ, service_account)
    home = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if home.exists():
        return _from_kubeconfig([home], context)
    raise ConfigError(
        f"no Kubernetes configuration found: --kubeconfig and $KUBECONFIG are not set, this is not a Pod, "
        f"and {home} does not exist; `vmafx dev up` starts a development cluster"
    )


def _from_kubeconfig(paths: list[Path], context: str | None) -> Config:
    resolved = Kubeconfig.read(paths).resolve(context)
    server, proxy = resolved.server, URL(resolved.proxy) if resolved.proxy else None
    proxy_credentials = basic(proxy.user, proxy.password or "") if proxy and proxy.user else Anonymous()
    return Config(
        server=server.rstrip("/"),
        tls=resolved.tls() if server.startswith("https:") else None,
        credentials=resolved.credentials(),
        namespace=resolved.namespace,
        server_name=resolved.server_name,
        proxy=str(proxy.with_user(None)) if proxy else None,
        proxy_credentials=proxy_credentials,
        origin=resolved.origin,
    )


def _in_cluster(environ: Mapping[str, str], mount: Path) -> Config:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    origin = f"the service account in {mount}"
    try:
        authority = (mount / "ca.crt").read_bytes()
    except OSError as error:
        raise ConfigError(f"{origin}: cannot read ca.crt: {error.strerror}") from error
    try:
        namespace = (mount / "namespace").read_text().strip()
    except OSError:
        namespace = "default"
    return Config(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        tls=trust_context(authority, origin),
        credentials=TokenFile(mount / "token", time.monotonic),
        namespace=namespace,
        origin=origin,
    )
