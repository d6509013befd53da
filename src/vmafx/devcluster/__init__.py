"""A real control plane on this machine: etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

For `vmafx dev` and for the tests, by the same code. Nothing of the product's own roles lives here.
"""

from vmafx.devcluster.cluster import ClusterOptions, DevCluster
from vmafx.devcluster.errors import DevClusterError

__all__ = ["ClusterOptions", "DevCluster", "DevClusterError"]
