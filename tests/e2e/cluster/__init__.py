"""A real Kubernetes cluster on this machine: two nodes with containers, for end-to-end tests.

Nothing of vmafx runs in it by itself.

cluster.py        start, use and stop a cluster
control_plane.py  etcd, API server, controllers, cluster DNS and an OCI registry
node.py           a node: containerd, kubelet, kube-proxy
device_plugin.py  a stand-in for a GPU vendor's device plugin
network.py        addresses, bridge and cables
process.py        processes in namespaces
isolate.py        a script that creates, holds and enters namespaces
leftovers.py      the state folder and cgroups of a run, also of one that was killed
requirements.py   what the machine must have
binaries.py       finds or builds programs that Debian does not have; go/ has the sources
images.py         small images
errors.py         all errors, as a tree
"""

from tests.e2e.cluster.cluster import NODES, Cluster
from tests.e2e.cluster.errors import CommandFailed, E2EError, MachineUnsuitable, StartFailed
from tests.e2e.cluster.images import PROBE_IMAGE

__all__ = ["NODES", "PROBE_IMAGE", "Cluster", "CommandFailed", "E2EError", "MachineUnsuitable", "StartFailed"]
