"""A real Kubernetes control plane on this machine: etcd, kube-apiserver, kube-controller-manager, kube-scheduler.

`vmafx dev`, the demo and the tests start it with the same code. The roles of vmafx do not belong here.

    cluster.py     a cluster in a state folder: start, wait until ready, stop
    components.py  the command line of each component
    process.py     a component as a process, with its log
    pki.py         keys, certificates and kubeconfigs of a cluster
    crds.py        installs the CRDs of vmafx
    binaries.py    finds the binaries of the components: configured, cached, downloaded or built
    build.py       builds the binaries with Go
    tools.py       finds or installs go and kubectl
    registry/      an OCI registry, for the demo and the tests
    helm/          finds or builds Helm, for the tests of the chart
    paths.py       folders of binaries and clusters, and the environment variables
    progress.py    reports long steps to the user
    errors.py      all errors, as a tree
"""

from vmafx.devcluster.cluster import ClusterOptions, DevCluster
from vmafx.devcluster.errors import DevClusterError

__all__ = ["ClusterOptions", "DevCluster", "DevClusterError"]
