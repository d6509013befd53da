"""`vmafx agent`: the process."""

import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from vmafx import logs
from vmafx.agent.agent import Agent, Superseded
from vmafx.agent.controller_link import ControllerLink, RegistrationInvalid
from vmafx.agent.settings import ABOUT, PROGRAM, AgentSettings
from vmafx.agent.spool import ResultSpool
from vmafx.api.hardware import Backend
from vmafx.cores import usable_cores
from vmafx.hardware import speed
from vmafx.hardware.devices import Device, HostHardware
from vmafx.jobs.worker_process import WorkerRunner
from vmafx.logs import log
from vmafx.scoring.errors import NodeFault
from vmafx.settings import load
from vmafx.wire import controller_pb2 as wire
from vmafx.wire.client import Endpoint

CORES_PER_JOB = 4
EXIT_FAILURE, EXIT_USAGE = 1, 2


class AgentExit(Exception):
    """The agent cannot go on; the sentence says why, and what to do."""

    def __init__(self, message: str, code: int = EXIT_FAILURE) -> None:
        super().__init__(message)
        self.code = code


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the agent until SIGTERM or Ctrl-C, and then until its work is done; exit code 1 if it cannot go on."""
    settings = load(AgentSettings, PROGRAM, ABOUT, sys.argv[1:] if arguments is None else arguments)
    logs.configure(settings.log_level, settings.log_format)
    logs.follow_signals()
    try:
        with locked_state_folder(settings.state):
            asyncio.run(run(settings))
    except AgentExit as end:
        log.error("the agent ends", why=str(end))
        sys.exit(end.code)


@contextmanager
def locked_state_folder(folder: Path) -> Iterator[None]:
    """The state folder, for one agent at a time: two would report each other's answers."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = (folder / "lock").open("a+")
    except OSError as error:
        raise _unusable(folder, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise AgentExit(
                f"another agent (process {lock.read().strip() or 'unknown'}) uses {folder}; "
                "stop it, or give this one a folder of its own by --state-dir"
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


def _unusable(folder: Path, error: OSError) -> AgentExit:
    return AgentExit(f"the state folder {folder} cannot be used: {error.strerror}; name another by --state-dir")


async def run(settings: AgentSettings) -> None:
    """Find out what this machine is, put the parts together, and run them until told to stop."""
    stop, at_once = asyncio.Event(), asyncio.Event()

    def told() -> None:
        (at_once if stop.is_set() else stop).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told)
    looking = asyncio.create_task(_look(settings.backend, settings.state))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([looking, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if stop.is_set():
        looking.cancel()
        await asyncio.wait([looking])
    else:
        await _work(settings, *looking.result(), stop, at_once)
    log.info("stopped")


async def _look(backend: Backend | None, folder: Path) -> tuple[Device, float]:
    device = await HostHardware().device(backend)
    try:
        return device, await speed.frames_per_second(folder, device)
    except NodeFault as fault:
        raise AgentExit(f"this machine cannot score: {fault}. `vmafx doctor` tells more") from fault
    except OSError as error:
        raise _unusable(folder, error) from error


async def _work(
    settings: AgentSettings, device: Device, fps: float, stop: asyncio.Event, at_once: asyncio.Event
) -> None:
    request, folder = registration(settings, device, fps), settings.state
    link = _link(settings)
    log.info(
        "starting", controller=settings.controller, name=request.name, device=device.text, fps=fps,
        capacity=request.capability.concurrency, state=folder, pid=os.getpid(),
    )  # fmt: skip
    end: AgentExit | None = None
    try:
        try:
            runner, spool = WorkerRunner(folder / "work"), ResultSpool(folder / "spool")
        except OSError as error:
            raise _unusable(folder, error) from error
        agent = Agent(link, request, runner, spool, device.backends[0], usable_cores())
        await agent.run(stop, at_once, settings.drain)
    except* Superseded as group:
        # As a wrong setting: started again, the two would stop each other's work for ever.
        end = AgentExit(str(group.exceptions[0]), EXIT_USAGE)
    except* RegistrationInvalid as group:
        end = AgentExit(f"the controller cannot use what this agent says: {group.exceptions[0]}", EXIT_USAGE)
    finally:
        await link.close()
    if end is not None:
        raise end


def _link(settings: AgentSettings) -> ControllerLink:
    door = Endpoint(
        address=settings.controller,
        insecure=settings.insecure,
        ca=settings.ca,
        cert=settings.cert,
        key=settings.key,
        token=settings.token,
    )
    if door.insecure and door.token:
        log.warn("the token is sent without TLS: whoever is on the way can use it")
    if (door.cert is None) != (door.key is None):
        raise AgentExit("--cert and --key belong together", EXIT_USAGE)
    try:
        return ControllerLink(door)
    except OSError as error:
        what = error.filename or "what --ca, --cert or --key names"
        raise AgentExit(f"{what} cannot be used: {error.strerror or error}", EXIT_USAGE) from error


def registration(settings: AgentSettings, device: Device, fps: float) -> wire.RegisterNodeRequest:
    usual = max(1, usable_cores() // CORES_PER_JOB) if device.vendor == "cpu" else device.count
    capability = wire.NodeCapability(
        gpu_vendor=device.vendor, backends=device.backends, concurrency=settings.capacity or usual
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
