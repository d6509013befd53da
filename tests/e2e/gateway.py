"""A gateway for a cluster: Envoy Gateway and Envoy as processes beside the control plane, which reach its Pods.

As a program: `python -m tests.e2e.gateway KUBECONFIG FOLDER`.
"""

import asyncio
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.e2e.cluster.network import CONTROL_PLANE
from tests.support.gateway.build import find_envoy_gateway
from tests.support.gateway.processes import GATEWAY, HTTP_PORT, NAMESPACE, GatewayProcesses
from tests.support.project import ROOT
from tests.support.waiting import until
from vmafx.devcluster.pki import ADMIN
from vmafx.devcluster.process import check_running, start_component
from vmafx.devcluster.progress import PlainProgress
from vmafx.kube import Client, load_config

NAME, ADDRESS = str(GATEWAY), f"{CONTROL_PLANE}:{HTTP_PORT}"
START, STOP = 180, 60  # seconds, on a busy machine
LOG_LINES = 60
READY = "the gateway is ready"


class ClusterGateway:
    """A running gateway: `name` for the operator's settings, `address` (HOST:PORT) for requests."""

    name, address = NAME, ADDRESS

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def logs(self) -> str:
        """The last lines of each process."""
        paths = sorted((self._folder / "logs").glob("*.log"))
        return "\n".join(
            line for path in paths for line in (f"--- {path.name}", *path.read_text().splitlines()[-LOG_LINES:])
        )


@contextmanager
def serve_gateway(cluster: Cluster) -> Iterator[ClusterGateway]:
    """Run a gateway that accepts routes of all namespaces, until the end of the block. Then its kinds are gone too."""
    files = find_envoy_gateway(PlainProgress())
    folder = Path(tempfile.mkdtemp(prefix="gateway-", dir=cluster.folder))
    gateway = ClusterGateway(folder)
    line = cluster.command([sys.executable, "-m", "tests.e2e.gateway", str(cluster.folder / ADMIN), str(folder)])
    process = start_component("gateway", line, cluster.folder, tethered=True, variables={"PYTHONPATH": str(ROOT)})
    log = cluster.folder / "logs" / "gateway.log"

    def ready() -> bool:
        check_running(process, cluster.folder)
        return READY in log.read_text()

    try:
        try:
            until(ready, READY, START)
        except BaseException as error:
            error.add_note(f"{log.read_text()}\n{gateway.logs()}")
            raise
        yield gateway
        _delete_gateway(cluster)  # while Envoy Gateway runs, which deletes what it has created
    finally:
        process.stop(STOP)
    names = (crd["metadata"]["name"] for crd in files.crds())
    cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=90s")
    cluster.kubectl("delete", "crd", *names, "--timeout=90s")


def _delete_gateway(cluster: Cluster) -> None:
    cluster.kubectl("delete", "gateway", GATEWAY.name, f"--namespace={NAMESPACE}", "--timeout=90s")
    cluster.kubectl("delete", "gatewayclass", GATEWAY.name, "--timeout=90s")
    pods = ("pods", f"--namespace={NAMESPACE}")
    until(lambda: cluster.get(*pods)["items"] == [], "the Pod of Envoy is gone", 90)


async def serve(kubeconfig: Path, folder: Path) -> None:
    """Run until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with Client(load_config(kubeconfig)) as client:
        processes = GatewayProcesses(find_envoy_gateway(PlainProgress()), client, kubeconfig, folder)
        async with processes.running():
            print(READY, flush=True)  # noqa: T201
            await stop.wait()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), Path(sys.argv[2])))
