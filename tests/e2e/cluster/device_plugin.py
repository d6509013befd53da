"""A stand-in for a GPU vendor's device plugin: its devices exist only for the kubelet and the scheduler.

It speaks the kubelet's device plugin API as a real one does: registers, lists devices, is asked before each container,
and registers again after the kubelet has restarted. A container gets the ids of its devices in E2E_DEVICES.

As a program: `device_plugin.py FOLDER RESOURCE HEALTH`, with the kubelet's folder of sockets, the name of the resource,
and a file with a line for each device: its id and its health.
"""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from tests.support.project import ROOT
from vmafx.devcluster.process import ComponentProcess, start_component

VARIABLE = "E2E_DEVICES"
VERSION = "v1beta1"
_MODULE = "tests.e2e.cluster.device_plugin"
POLL = 0.2  # seconds
REGISTER_TIMEOUT = 10.0


class DevicePlugin:
    """The plugin of one resource on a node, as the tests see it."""

    def __init__(self, run: Path, node: Path, resource: str, count: int) -> None:
        """`run` and `node` are the state folders."""
        self.resource = resource
        self.devices = [f"{resource.partition('.')[0]}-{number}" for number in range(count)]
        name = f"{node.name}-{resource.replace('/', '-')}"
        self._health = run / f"{name}.devices"
        self.set_unhealthy()
        program = [sys.executable, "-m", _MODULE, str(node / "kubelet" / "device-plugins"), resource]
        variables = {"PYTHONPATH": str(ROOT)}
        self._process: ComponentProcess = start_component(
            name, [*program, str(self._health)], run, tethered=True, variables=variables
        )

    def set_unhealthy(self, *devices: str) -> None:
        """Report these devices as unhealthy, and all others as healthy."""
        if unknown := set(devices) - set(self.devices):
            raise ValueError(f"no such device: {', '.join(sorted(unknown))}")
        lines = [f"{device} {'Unhealthy' if device in devices else 'Healthy'}\n" for device in self.devices]
        part = self._health.with_suffix(".part")
        part.write_text("".join(lines))
        part.replace(self._health)

    def stop(self) -> None:
        """The kubelet then offers none of the devices; Pods that have some go on."""
        self._process.stop()


class _Servicer:
    """The calls of the kubelet."""

    def __init__(self, messages: Any, health: Path) -> None:
        self._messages, self._health = messages, health
        self.ended = False

    def GetDevicePluginOptions(self, _request: Any, _context: grpc.ServicerContext) -> Any:  # noqa: N802 - a call
        return self._messages.DevicePluginOptions()

    def ListAndWatch(self, _request: Any, context: grpc.ServicerContext) -> Iterator[Any]:  # noqa: N802
        """Send the devices, again whenever one of them changes."""
        sent = None
        while context.is_active() and not self.ended:
            text = self._health.read_text()
            if text != sent:
                sent = text
                pairs = [line.split() for line in text.splitlines()]
                devices = [self._messages.Device(id=one, health=health) for one, health in pairs]
                yield self._messages.ListAndWatchResponse(devices=devices)
            time.sleep(POLL)

    def Allocate(self, request: Any, _context: grpc.ServicerContext) -> Any:  # noqa: N802
        answers = [
            self._messages.ContainerAllocateResponse(envs={VARIABLE: ",".join(sorted(one.devices_ids))})
            for one in request.container_requests
        ]
        return self._messages.AllocateResponse(container_responses=answers)


def serve(folder: Path, resource: str, health: Path) -> None:
    """Serve until the kubelet deletes the socket, which it does when it starts."""
    messages, services = grpc.protos_and_services(str(Path(__file__).with_suffix(".proto").relative_to(ROOT)))
    socket = folder / f"{resource.replace('/', '-')}.sock"
    socket.unlink(missing_ok=True)
    servicer = _Servicer(messages, health)
    server = grpc.server(ThreadPoolExecutor(4))
    services.add_DevicePluginServicer_to_server(servicer, server)
    server.add_insecure_port(f"unix://{socket}")
    server.start()
    request = messages.RegisterRequest(version=VERSION, endpoint=socket.name, resource_name=resource)
    options = [("grpc.default_authority", "localhost")]  # the kubelet refuses the path of a socket
    try:
        with grpc.insecure_channel(f"unix://{folder / 'kubelet.sock'}", options) as channel:
            services.RegistrationStub(channel).Register(request, timeout=REGISTER_TIMEOUT)
        while socket.exists():
            time.sleep(POLL)
    finally:
        servicer.ended = True
        server.stop(0).wait()


def main() -> None:
    folder, resource, health = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    while True:
        with suppress(grpc.RpcError):  # the kubelet is about to start, or has ended
            serve(folder, resource, health)
        time.sleep(POLL)


if __name__ == "__main__":
    main()
