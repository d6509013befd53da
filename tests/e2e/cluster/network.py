"""The network of a cluster: a bridge with the control plane, and a cable (veth) to each node.

The namespaces have no way out: nothing in them reaches this machine's interfaces, and addresses cannot clash.
Pods are routed (CNI plugin ptp), not bridged, so that the answer of a Service always passes its node's packet filter.
"""

import os
import subprocess
from ipaddress import IPv4Address, IPv4Network

from tests.e2e.cluster.errors import StartFailed
from tests.e2e.cluster.process import SYSTEM_PATH

CONTROL_PLANE = IPv4Address("10.250.0.1")  # also of cluster DNS and the registry
MACHINES = IPv4Network("10.250.0.0/24")
PODS = IPv4Network("10.244.0.0/16")
SERVICES = IPv4Network("10.96.0.0/16")
DNS_SERVICE = IPv4Address("10.96.0.10")
BRIDGE = "cluster0"


def node_address(number: int) -> IPv4Address:
    return IPv4Address(int(CONTROL_PLANE) + 9 + number)


def pod_subnet(number: int) -> IPv4Network:
    return list(PODS.subnets(new_prefix=24))[number]


def connect(control: int, nodes: dict[str, int]) -> None:
    """Set up the networks that process `control` and the processes of `nodes` hold."""
    numbers = {name: number for number, name in enumerate(nodes, 1)}
    _ip(
        control,
        "link set lo up",
        f"link add {BRIDGE} type bridge",
        f"addr add {CONTROL_PLANE}/{MACHINES.prefixlen} dev {BRIDGE}",
        f"link set {BRIDGE} up",
        *(line for name, pid in nodes.items() for line in (
            f"link add {name} type veth peer name eth0 netns {pid}",
            f"link set {name} master {BRIDGE} up",
        )),
        *(f"route add {pod_subnet(number)} via {node_address(number)}" for number in numbers.values()),
    )  # fmt: skip
    for name, pid in nodes.items():
        _ip(
            pid,
            "link set lo up",
            f"addr add {node_address(numbers[name])}/{MACHINES.prefixlen} dev eth0",
            "link set eth0 up",
            # kube-proxy rewrites the destination after a route has been found.
            f"route add {SERVICES} via {CONTROL_PLANE}",
            *(
                f"route add {pod_subnet(number)} via {node_address(number)}"
                for other, number in numbers.items()
                if other != name
            ),
        )
    route_services(control, next(iter(numbers.values())))


def route_services(control: int, number: int) -> None:
    """Let processes beside the control plane reach Services through the kube-proxy of a node."""
    _ip(control, f"route replace {SERVICES} via {node_address(number)}")


def set_cable(control: int, name: str, *, plugged: bool) -> None:
    _ip(control, f"link set {name} {'up' if plugged else 'down'}")


def _ip(holder: int, *lines: str) -> None:
    command = ["nsenter", f"--net=/proc/{holder}/ns/net", "ip", "-batch", "-"]
    text = "\n".join(lines) + "\n"
    environment = {**os.environ, "PATH": SYSTEM_PATH}
    done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise StartFailed(f"cannot set up the network: {' '.join(done.stderr.split())}")
