"""Where the server is and how to talk to it: found as controller-runtime finds it.

In order: an explicit kubeconfig, $KUBECONFIG, the service account of the Pod we run in, ~/.kube/config.
"""

import os
import ssl
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from vmafx.kube.credentials import Anonymous, Credentials, TokenFile
from vmafx.kube.errors import ConfigError
from vmafx.kube.kubeconfig import Kubeconfig

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """A server, the way to reach it, and who we are to it."""

    server: str
    tls: ssl.SSLContext | None
    credentials: Credentials = Anonymous()
    namespace: str = "default"
    server_name: str | None = None
    proxy: str | None = None
    origin: str = ""  # for messages: which file and context this came from


def load_config(
    kubeconfig: str | Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Config:
    """Find a configuration; say which places were looked at when there is none."""
    if kubeconfig:
        return _from_kubeconfig([Path(kubeconfig)], context)
    if listed := [Path(part) for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]:
        return _from_kubeconfig(listed, context)
    if environ.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists():
        return _in_cluster(environ, service_account)
    home = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if home.exists():
        return _from_kubeconfig([home], context)
    raise ConfigError(
        f"no Kubernetes configuration: no --kubeconfig, $KUBECONFIG is empty, this is no Pod, and there is no {home}; "
        "`vmafx dev up` starts a cluster to try things on"
    )


def _from_kubeconfig(paths: list[Path], context: str | None) -> Config:
    chosen = Kubeconfig.read(paths).choose(context)
    server = chosen.server
    return Config(
        server=server.rstrip("/"),
        tls=chosen.tls() if server.startswith("https:") else None,
        credentials=chosen.credentials(),
        namespace=chosen.namespace,
        server_name=chosen.server_name,
        proxy=chosen.proxy,
        origin=chosen.origin,
    )


def _in_cluster(environ: Mapping[str, str], mount: Path) -> Config:
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT", "443")
    try:
        tls = ssl.create_default_context(cafile=str(mount / "ca.crt"))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot use the cluster's CA {mount / 'ca.crt'}: {error}") from error
    try:
        namespace = (mount / "namespace").read_text().strip()
    except OSError:
        namespace = "default"
    return Config(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        tls=tls,
        credentials=TokenFile(mount / "token", time.monotonic),
        namespace=namespace,
        origin=f"the service account in {mount}",
    )
