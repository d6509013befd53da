"""The command line of each component. None listens on an address other than loopback."""

from pathlib import Path

ETCD, APISERVER = "etcd", "kube-apiserver"
CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
ALL = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER)
OPTIONAL = {"controller-manager": CONTROLLER_MANAGER, "scheduler": SCHEDULER}
SERVICE_RANGE = "10.96.0.0/16"

# etcd listens on Unix sockets in the state folder, which only its owner can enter: no port and no password needed.
# It insists on "host:port", so the sockets are named like that.
_CLIENT_SOCKET, _PEER_SOCKET = "client:0", "peer:0"


def command(name: str, binary: Path, port: int, *, without: frozenset[str] = frozenset()) -> list[str]:
    """The command line of a component; paths are relative to the state folder, where it runs."""
    flags = {ETCD: _etcd, APISERVER: _apiserver, CONTROLLER_MANAGER: _manager, SCHEDULER: _scheduler}[name]
    return [str(binary), *flags(port, without)]


def _etcd(_port: int, _without: frozenset[str]) -> list[str]:
    client, peer = f"unix://{_CLIENT_SOCKET}", f"unix://{_PEER_SOCKET}"
    return [
        "--name=vmafx-dev",
        "--data-dir=etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=vmafx-dev={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver(port: int, without: frozenset[str]) -> list[str]:
    flags = [
        f"--etcd-servers=unix:{_CLIENT_SOCKET}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--tls-cert-file=pki/server.crt",
        "--tls-private-key-file=pki/server.key",
        "--client-ca-file=pki/ca.crt",
        # No such certificate exists; without these flags every component logs warnings.
        "--requestheader-client-ca-file=pki/ca.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file=pki/service-account.pub",
        "--service-account-signing-key-file=pki/service-account.key",
        "--authorization-mode=RBAC",
        # Owner references then need permission to update finalizers, as on many production clusters.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
        "--allow-privileged=true",
        "--profiling=false",
    ]
    if CONTROLLER_MANAGER in without:
        # Without the controller manager, no default service account exists for Pods.
        flags.append("--disable-admission-plugins=ServiceAccount")
    return flags


def _manager(port: int, _without: frozenset[str]) -> list[str]:
    return [
        *_client_flags("controller-manager", port),
        "--service-account-private-key-file=pki/service-account.key",
        "--root-ca-file=pki/ca.crt",
        "--use-service-account-credentials=true",
        "--flex-volume-plugin-dir=volume-plugins",  # it creates this folder; by default in /usr/libexec
        # It requests a token for each of its controllers; at the default rate that takes five seconds.
        "--kube-api-qps=500",
        "--kube-api-burst=500",
    ]


def _scheduler(port: int, _without: frozenset[str]) -> list[str]:
    return _client_flags("scheduler", port)


def _client_flags(name: str, port: int) -> list[str]:
    return [
        f"--kubeconfig={name}.kubeconfig",
        f"--authentication-kubeconfig={name}.kubeconfig",
        f"--authorization-kubeconfig={name}.kubeconfig",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--tls-cert-file=pki/server.crt",
        "--tls-private-key-file=pki/server.key",
        "--profiling=false",
    ]
