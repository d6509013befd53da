"""The control plane: etcd, API server, controller manager, scheduler; beside it cluster DNS and an OCI registry."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from tests.e2e.cluster import network
from tests.e2e.cluster.binaries import Binaries
from tests.e2e.cluster.node import REGISTRY
from tests.e2e.cluster.process import Namespaces
from vmafx.devcluster import components, pki, registry
from vmafx.devcluster.components import APISERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER
from vmafx.devcluster.process import ComponentProcess

API_PORT = 6443
SERVER = f"https://{network.CONTROL_PLANE}:{API_PORT}"
DNS_READY_PORT = 8181
VOLUMES = 32
_PORTS = {ETCD: 0, APISERVER: API_PORT, CONTROLLER_MANAGER: 10257, SCHEDULER: 10259}
# Appended to the flags of a dev cluster: the last one counts, and lists grow.
_EXTRA_FLAGS: dict[str, list[str]] = {
    APISERVER: [
        f"--bind-address={network.CONTROL_PLANE}",
        f"--advertise-address={network.CONTROL_PLANE}",
        "--endpoint-reconciler-type=lease",
        "--authorization-mode=Node",
        "--enable-admission-plugins=NodeRestriction",
        "--kubelet-client-certificate=pki/apiserver.crt",
        "--kubelet-client-key=pki/apiserver.key",
        "--kubelet-preferred-address-types=InternalIP",
        # Tests of node loss should not take the default five minutes.
        "--default-not-ready-toleration-seconds=5",
        "--default-unreachable-toleration-seconds=5",
    ],
    CONTROLLER_MANAGER: ["--node-monitor-period=1s", "--node-monitor-grace-period=16s"],
}
_RESOLV_CONF = f"""\
nameserver {network.CONTROL_PLANE}
search default.svc.cluster.local svc.cluster.local cluster.local
options ndots:5
"""
# The server's processes see the cluster's names, whatever resolver this machine has.
_MOUNTS = """
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
target=$(readlink -m /etc/resolv.conf)
case $target in /run/*) mkdir -p "${{target%/*}}"; touch "$target" ;; esac
[ ! -e "$target" ] || mount --bind {folder}/resolv.conf "$target"
"""
_COREFILE = f"""
cluster.local in-addr.arpa ip6.arpa {{
    bind {network.CONTROL_PLANE}
    errors
    ready {network.CONTROL_PLANE}:{DNS_READY_PORT}
    kubernetes {{
        kubeconfig {{folder}}/cluster-dns.kubeconfig
        ttl 5
    }}
}}
. {{
    bind {network.CONTROL_PLANE}
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def write_credentials(folder: Path, nodes: Iterable[str], relay_port: int) -> Path:
    """Write the keys, certificates and kubeconfigs; returns the kubeconfig of the administrator on this machine."""
    authority = pki.write_credentials(folder, SERVER, str(network.CONTROL_PLANE))
    certificate, key = authority.client("kube-apiserver-kubelet-client", "system:masters")
    pki.write_secret(folder / "pki" / "apiserver.crt", certificate)
    pki.write_secret(folder / "pki" / "apiserver.key", key)
    for name in nodes:
        user = f"system:node:{name}"
        pki.write_kubeconfig(folder / f"{name}.kubeconfig", SERVER, authority, user, "system:nodes")
    for name, user in (("kube-proxy", "system:kube-proxy"), ("cluster-dns", "cluster-dns")):
        pki.write_kubeconfig(folder / f"{name}.kubeconfig", SERVER, authority, user)
    path = folder / "admin.kubeconfig"
    pki.write_kubeconfig(path, f"https://127.0.0.1:{relay_port}", authority, "admin", "system:masters")
    return path


class ControlPlane:
    """The processes in the namespaces `space`, whose state folder has the credentials."""

    def __init__(self, space: Namespaces, binaries: Binaries) -> None:
        self._space, self._binaries = space, binaries
        self._folder = space.folder
        self.processes: list[ComponentProcess] = []

    def start_api(self) -> None:
        """Start etcd, the API server and the registry."""
        (self._folder / "resolv.conf").write_text(_RESOLV_CONF)
        self._space.run(["sh", "-euc", _MOUNTS.format(folder=self._folder)])
        self._start(ETCD)
        self._start(APISERVER)
        content = registry.configuration(REGISTRY, self._folder / "registry")
        (self._folder / "registry.json").write_bytes(content)
        command = [str(self._binaries.registry), "serve", f"{self._folder}/registry.json"]
        self.processes.append(self._space.start("registry", command))

    def start_controllers(self) -> None:
        """Start what needs the API server."""
        self._start(CONTROLLER_MANAGER)
        self._start(SCHEDULER)

    def start_dns(self) -> None:
        """Start what needs the objects of `manifests`."""
        (self._folder / "Corefile").write_text(_COREFILE.replace("{folder}", str(self._folder)))
        command = [str(self._binaries.dns), "-conf", f"{self._folder}/Corefile"]
        self.processes.append(self._space.start("cluster-dns", command))

    def _start(self, name: str) -> None:
        command = components.command(name, self._binaries.kubernetes[name], _PORTS[name])
        self.processes.append(self._space.start(name, [*command, *_EXTRA_FLAGS.get(name, [])]))


def _volumes(folder: Path) -> list[dict[str, Any]]:
    """A default storage class, and volumes for its claims: folders of this machine, which all nodes see.

    So they behave like network storage: a Pod finds its files again on another node. A volume is used once.
    """
    name, volumes = "shared", []
    for number in range(1, VOLUMES + 1):
        path = folder / str(number)
        path.mkdir(parents=True)
        path.chmod(0o777)  # the kubelet sets no owner (fsGroup) on volumes of kind hostPath
        spec = {
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "capacity": {"storage": "100Gi"},
            "hostPath": {"path": str(path), "type": "Directory"},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": name,
        }
        metadata = {"name": f"{name}-{number}"}
        volumes.append({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec})
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": default},
        "provisioner": "kubernetes.io/no-provisioner",
    }
    return [storage_class, *volumes]


def manifests(volumes: Path) -> bytes:
    """The rights of cluster DNS, its Service with its address, and volumes in the folder `volumes`."""
    rules = [
        {"apiGroups": [""], "resources": ["namespaces", "pods", "services"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    rbac, name = "rbac.authorization.k8s.io", "cluster-dns"
    ports = [{"name": protocol.lower(), "protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    slice_labels = {"kubernetes.io/service-name": "kube-dns"}
    objects = [
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": name}],
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {"clusterIP": str(network.DNS_SERVICE), "ports": ports},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": slice_labels},
            "addressType": "IPv4",
            "ports": ports,
            "endpoints": [{"addresses": [str(network.CONTROL_PLANE)], "conditions": {"ready": True}}],
        },
    ]
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": [*objects, *_volumes(volumes)]})
