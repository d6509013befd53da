"""A Kubernetes node: namespaces with containerd, a kubelet and kube-proxy."""

import os
import re
import signal
import subprocess
from ipaddress import IPv4Address
from pathlib import Path

import msgspec

from tests.e2e.cluster import network
from tests.e2e.cluster.binaries import Binaries
from tests.e2e.cluster.errors import CommandFailed
from tests.e2e.cluster.process import SYSTEM_PATH, Namespaces, wait_for
from vmafx.devcluster.process import ComponentProcess

SANDBOX_IMAGE = "localhost/pause:1"
REGISTRY = f"{network.CONTROL_PLANE}:5000"
CNI_PLUGINS = Path("/usr/lib/cni")
SYSCTLS = {  # what the kubelet would set on this machine: files with these values cover them in the node
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
# /var/lib and /var/log: writes go to the node's folder. /run: Debian's containerd may have sockets there.
_MOUNTS = """
mount --make-rshared /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
for name in lib log; do
  mkdir {folder}/$name {folder}/$name.work
  mount -t overlay -o lowerdir=/var/$name,upperdir={folder}/$name,workdir={folder}/$name.work overlay /var/$name
done
mkdir -p /var/lib/kubelet
mount --bind {folder}/kubelet /var/lib/kubelet
cd {folder}/sysctl
find . -type f | while read -r name; do mount --bind "$name" "/proc/sys/$name"; done
echo 1 > /proc/sys/net/ipv4/ip_forward
hostname {name}
"""
_PLAIN_HTTP = f"""
server = "http://{REGISTRY}"
[host."http://{REGISTRY}"]
  capabilities = ["pull", "resolve"]
"""
_CONTAINERD = """
version = 2
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt",
]
[grpc]
  address = "{folder}/containerd.sock"
[ttrpc]
  address = "{folder}/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox}"
  # Also where root may not lower oom_score_adj, as in many containers and virtual machines.
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{folder}/registries"
"""


class Node:
    """A node of the cluster in the state folder `run`."""

    def __init__(self, number: int, run: Path, space: Namespaces, binaries: Binaries, cgroup: str) -> None:
        self.name, self.number, self.space = space.name, number, space
        self.folder = run / self.name
        self._run, self._binaries, self._cgroup = run, binaries, cgroup
        self._containerd: ComponentProcess | None = None
        self._proxy: ComponentProcess | None = None
        self._kubelet: ComponentProcess | None = None

    @property
    def address(self) -> IPv4Address:
        return network.node_address(self.number)

    @property
    def kubeconfig(self) -> Path:
        return self._run / f"{self.name}.kubeconfig"

    def prepare(self) -> None:
        """Write the configuration, mount, and start containerd, which needs no API server."""
        for name in ("kubelet", "cni", f"registries/{REGISTRY}"):
            (self.folder / name).mkdir(parents=True)
        for name, value in SYSCTLS.items():
            path = self.folder / "sysctl" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
        (self.folder / "registries" / REGISTRY / "hosts.toml").write_text(_PLAIN_HTTP)
        (self.folder / "cni" / "pods.conflist").write_bytes(msgspec.json.encode(self._cni()))
        (self.folder / "kubelet.json").write_bytes(msgspec.json.encode(self._kubelet_configuration()))
        (self.folder / "proxy.json").write_bytes(msgspec.json.encode(self._proxy_configuration()))
        (self.folder / "containerd.toml").write_text(
            _CONTAINERD.format(folder=self.folder, sandbox=SANDBOX_IMAGE, plugins=CNI_PLUGINS)
        )
        self.space.run(["sh", "-euc", _MOUNTS.format(folder=self.folder, name=self.name)])
        command = ["containerd", f"--config={self.folder}/containerd.toml"]
        self._containerd = self.space.start(f"{self.name}-containerd", command)

    def wait_for_containerd(self) -> None:
        assert self._containerd is not None
        wait_for(lambda: self._ctr("version").returncode == 0, "containerd answers", [self._containerd], self._run)

    def start(self) -> None:
        """Start the kubelet and kube-proxy. The sandbox image is there."""
        self.start_kubelet()
        command = [str(self._binaries.kubernetes["kube-proxy"]), f"--config={self.folder}/proxy.json"]
        self._proxy = self.space.start(f"{self.name}-kube-proxy", command)

    def start_kubelet(self) -> None:
        command = [
            str(self._binaries.kubernetes["kubelet"]),
            f"--config={self.folder}/kubelet.json",
            f"--kubeconfig={self.kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
        ]
        self._kubelet = self.space.start(f"{self.name}-kubelet", command)

    def kill_kubelet(self) -> None:
        """SIGKILL, as when a machine fails: containers go on."""
        assert self._kubelet is not None
        os.kill(self._kubelet.pid, signal.SIGKILL)
        self._kubelet.stop()

    def kill_container(self, identity: str) -> None:
        """SIGKILL to the first process of a container, and so to all; the ID is that of the Pod's status."""
        self._checked("tasks", "kill", "--signal=SIGKILL", identity.removeprefix("containerd://"))

    def processes(self) -> list[ComponentProcess]:
        return [one for one in (self._containerd, self._kubelet, self._proxy) if one is not None]

    def load_image(self, archive: Path, tag: str | None = None) -> None:
        """Import an archive (docker-archive or OCI layout as a tar file); `tag` is one more name for its only image."""
        names = re.findall(r"^unpacking (\S+)", self._checked("images", "import", str(archive)), re.MULTILINE)
        if tag and len(names) != 1:
            raise CommandFailed(f"{archive} has {len(names)} names for images: a tag needs exactly one")
        if tag:
            self._checked("images", "tag", "--force", names[0], tag)

    def images(self) -> list[str]:
        """The names of the images, in full (docker.io/library/NAME:TAG for a bare name)."""
        return self._checked("images", "list", "--quiet").split()

    def _checked(self, *arguments: str) -> str:
        done = self._ctr(*arguments)
        if done.returncode != 0:
            raise CommandFailed(f"{self.name}: ctr {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _ctr(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = ["ctr", "--address", str(self.folder / "containerd.sock"), "--namespace", "k8s.io", *arguments]
        environment = {**os.environ, "PATH": SYSTEM_PATH}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    def _cni(self) -> object:
        subnet = str(network.pod_subnet(self.number))
        addresses = {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}]}
        plugin = {"type": "ptp", "ipMasq": False, "ipam": {**addresses, "dataDir": str(self.folder / "addresses")}}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]}

    def _kubelet_configuration(self) -> object:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": str(self.address),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._run / "pki" / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self._cgroup,
            "clusterDNS": [str(network.DNS_SERVICE)],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": f"unix://{self.folder}/containerd.sock",
            "enforceNodeAllocatable": [],
            # Far below what a shared machine may have left; Pods are not evicted for what others use.
            "evictionHard": {
                "memory.available": "100Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%",
                "imagefs.available": "1%",
            },
            "failCgroupV1": False,
            "failSwapOn": False,
            "imageGCHighThresholdPercent": 100,
            # Else an imported image can no longer be used once it has been pulled under another name.
            "imagePullCredentialsVerificationPolicy": "NeverVerify",
            "makeIPTablesUtilChains": False,
            "nodeLeaseDurationSeconds": 8,
            "nodeStatusUpdateFrequency": "4s",
            "oomScoreAdj": 0,
            "resolvConf": "",
            "volumePluginDir": str(self.folder / "volume-plugins"),  # by default in /usr/libexec of this machine
        }  # fmt: skip

    def _proxy_configuration(self) -> object:
        return {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self._run / "kube-proxy.kubeconfig")},
            "bindAddress": str(self.address),
            "clusterCIDR": str(network.PODS),
            "conntrack": {"maxPerCore": 0, "min": 0},  # the limits are those of the machine
            "hostnameOverride": self.name,
            "mode": "nftables",
            "oomScoreAdj": 0,
        }
