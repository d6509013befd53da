"""The `vmafx agent` process: finds the device, measures its speed, runs the agent until it is stopped."""

import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from vmafx import logs
from vmafx.agent.agent import Agent, AgentSpools, Superseded
from vmafx.agent.controller_link import ControllerLink, InvalidRequest
from vmafx.agent.samples import SampleSpool
from vmafx.agent.settings import ABOUT, PROGRAM, AgentSettings
from vmafx.agent.spool import ResultSpool
from vmafx.api.hardware import Backend
from vmafx.api.scoring import CORES_PER_JOB
from vmafx.cores import usable_cores
from vmafx.hardware import speed
from vmafx.hardware.devices import Device, HostHardware
from vmafx.jobs.worker_process import WorkerRunner
from vmafx.logs import log
from vmafx.scoring.errors import NodeFault
from vmafx.settings import load
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.client import Endpoint

EXIT_FAILURE, EXIT_USAGE = 1, 2


class AgentExit(Exception):
    """The agent cannot continue; the text says why and what to do."""

    def __init__(self, message: str, code: int = EXIT_FAILURE) -> None:
        super().__init__(message)
        self.code = code


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the agent until SIGTERM or Ctrl-C, then drain it; the exit code is 1 if it cannot continue."""
    settings = load(AgentSettings, PROGRAM, ABOUT, sys.argv[1:] if arguments is None else arguments)
    logs.configure(settings.log_level, settings.log_format)
    logs.follow_signals()
    try:
        with locked_state_folder(settings.state):
            asyncio.run(run(settings))
    except AgentExit as end:
        log.error("agent exits", error=str(end))
        sys.exit(end.code)


@contextmanager
def locked_state_folder(folder: Path) -> Iterator[None]:
    """Lock the state folder: two agents in one folder would report each other's results."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (folder / "lock").open("a+")
    except OSError as error:
        raise _folder_error(folder, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise AgentExit(
                f"another agent (process {lock.read().strip() or 'unknown'}) uses {folder}: "
                "stop it, or give this agent its own folder with --state-dir"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _folder_error(folder: Path, error: OSError) -> AgentExit:
    return AgentExit(f"cannot use the state folder {folder}: {error.strerror}; choose another with --state-dir")


async def run(settings: AgentSettings) -> None:
    """Find the device, then run the agent until SIGTERM or SIGINT; the second signal ends a drain."""
    stop, stop_now = asyncio.Event(), asyncio.Event()

    def on_signal() -> None:
        (stop_now if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)
    examining = asyncio.create_task(_examine(settings.backend, settings.state))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([examining, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stop.is_set():
        examining.cancel()
        await asyncio.wait([examining])
    else:
        await _run_agent(settings, *examining.result(), stop, stop_now)
    log.info("stopped")


async def _examine(backend: Backend | None, folder: Path) -> tuple[Device, float]:
    """The device of this machine and its speed in frames per second."""
    device = await HostHardware().device(backend)
    try:
        return device, await speed.frames_per_second(folder, device)
    except NodeFault as fault:
        raise AgentExit(f"this machine cannot score: {fault}; run `vmafx doctor` for details") from fault
    except OSError as error:
        raise _folder_error(folder, error) from error


async def _run_agent(
    settings: AgentSettings, device: Device, fps: float, stop: asyncio.Event, stop_now: asyncio.Event
) -> None:
    request, folder = registration(settings, device, fps), settings.state
    link = _connect(settings)
    log.info(
        "starting", controller=settings.controller, name=request.name, device=device.text, fps=fps,
        capacity=request.capability.concurrency, state=folder, pid=os.getpid(),
    )  # fmt: skip
    end: AgentExit | None = None
    try:
        try:
            runner, results = WorkerRunner(folder / "work"), ResultSpool(folder / "spool")
        except OSError as error:
            raise _folder_error(folder, error) from error
        with closing(SampleSpool(folder / "samples", settings.samples_mib << 20)) as samples:
            spools = AgentSpools(results, samples)
            agent = Agent(link, request, runner, spools, device.worker_backend, usable_cores())
            await agent.run(stop, stop_now, settings.drain)
    except* Superseded as group:
        # The exit code of wrong settings: after a restart the two agents would stop each other's jobs again and again.
        end = AgentExit(str(group.exceptions[0]), EXIT_USAGE)
    except* InvalidRequest as group:
        end = AgentExit(f"the controller rejected the registration as invalid: {group.exceptions[0]}", EXIT_USAGE)
    finally:
        await link.close()
    if end is not None:
        raise end


def _connect(settings: AgentSettings) -> ControllerLink:
    endpoint = Endpoint(
        address=settings.controller,
        insecure=settings.insecure,
        ca=settings.ca,
        cert=settings.cert,
        key=settings.key,
        token=settings.token,
    )
    if endpoint.insecure and endpoint.token:
        log.warn("the token is sent without TLS; anyone on the network path can read it")
    if (endpoint.cert is None) != (endpoint.key is None):
        raise AgentExit("--cert and --key must be given together", EXIT_USAGE)
    try:
        return ControllerLink(endpoint)
    except OSError as error:
        file = error.filename or "the files of --ca, --cert and --key"
        raise AgentExit(f"cannot use {file}: {error.strerror or error}", EXIT_USAGE) from error


def registration(settings: AgentSettings, device: Device, fps: float) -> wire.RegisterNodeRequest:
    default = max(1, usable_cores() // CORES_PER_JOB) if device.vendor == "cpu" else device.count
    capability = wire.NodeCapability(
        gpu_vendor=device.vendor, backends=device.backends, concurrency=settings.capacity or default
    )
    return wire.RegisterNodeRequest(
        name=settings.name,
        capability=capability,
        namespace=settings.namespace,
        device=device.text,
        fps=fps,
        labels=settings.labels,
    )


if __name__ == "__main__":
    main()
