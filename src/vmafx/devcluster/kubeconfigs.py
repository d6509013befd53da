"""The files by which the components and people reach the API server, each with a client certificate of its own."""

import base64
from pathlib import Path

import msgspec

from vmafx.devcluster import pki

ADMIN = "kubeconfig"
USERS = {
    ADMIN: ("vmafx-dev-admin", "system:masters"),
    "controller-manager.kubeconfig": ("system:kube-controller-manager", ""),
    "scheduler.kubeconfig": ("system:kube-scheduler", ""),
}


def write_all(folder: Path, server: str) -> None:
    """Keys, certificates and kubeconfigs of a new cluster."""
    authority = pki.Authority()
    (folder / "pki").mkdir(mode=0o700)
    certificate, key = authority.server()
    private, public = pki.service_account_key()
    for name, content in {
        "ca.crt": authority.certificate,
        "server.crt": certificate,
        "server.key": key,
        "service-account.key": private,
        "service-account.pub": public,
    }.items():
        pki.write_secret(folder / "pki" / name, content)
    for file, (user, group) in USERS.items():
        client = authority.client(user, group)
        pki.write_secret(folder / file, _kubeconfig(server, folder.name, authority.certificate, *client))


def _kubeconfig(server: str, name: str, authority: bytes, certificate: bytes, key: bytes) -> bytes:
    def data(content: bytes) -> str:
        return base64.b64encode(content).decode()

    cluster = {"server": server, "certificate-authority-data": data(authority)}
    user = {"client-certificate-data": data(certificate), "client-key-data": data(key)}
    whole = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
    }
    return msgspec.yaml.encode(whole)
