"""Who an agent is: its tokens and certificates, its name, its state folder."""

from pathlib import Path

import grpc
import pytest

from tests.support.agent_process import AgentProcess, agent, children, read
from tests.support.memory_controller import MemoryController
from tests.support.waiting import eventually
from vmafx.devcluster.pki import Authority


async def test_superseded_it_ends_and_says_what_to_do(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed) as running:
        await eventually(running.workers, "it works")
        (worker,) = children(running.process.pid)
        controller.superseded = True
        controller.sessions.clear()
        controller.change()  # the pull that waits is the first to be told, and not why
        assert await running.ended() == 2
        assert not read(worker, "cmdline")
        assert len(controller.calls("RegisterNode")) == 1  # two of a name would take it from each other for ever
    why = running.log[-1]["why"]
    assert "another agent has registered as default/machine" in why
    assert "--name" in why


async def test_a_token_is_read_for_every_call(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    state = tmp_path / "state"
    token.write_text("first\n")
    variables = {"VMAFX_AGENT_TOKEN_FILE": str(token), "VMAFX_MEDIA_ALLOW_PRIVATE": "true", "AWS_PROFILE": "clips"}
    async with agent(controller.address, state, speed, variables=variables | {"SECRET": "x"}) as running:
        await eventually(lambda: controller.calls("PullWork"), "it asks for work")
        assert {one.authorization for one in controller.received} == {"Bearer first"}
        token.write_text("second")
        controller.place_long(clips)
        environment = await told_to_a_worker(running)
        await eventually(
            lambda: controller.received[-1].authorization == "Bearer second", "it asks on with the new one"
        )
    names = {one.partition("=")[0] for one in environment.split("\0")}
    assert {"VMAFX_MEDIA_ALLOW_PRIVATE", "AWS_PROFILE", "VMAFX_WORK"} <= names
    assert not [name for name in names if name.startswith(("VMAFX_AGENT", "VMAFX_CONTROLLER", "SECRET"))]


async def test_a_token_that_goes_is_told_as_that(controller: MemoryController, speed: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    controller.refusals["RegisterNode"] = grpc.StatusCode.UNAUTHENTICATED
    async with agent(controller.address, tmp_path / "state", speed, "--token-file", str(token)) as running:
        await running.wait_for_log("the controller refuses this agent")
        assert "--token-file" in running.log[-1]["advice"]
        token.unlink()
        await running.wait_for_log("there is no token to show the controller")
        assert running.log[-1]["why"] == f"the token file {token} cannot be read: No such file or directory"
        assert not running.has_logged("cannot be reached")
        controller.refusals.clear()
        token.write_text("second")
        await running.wait_for_log("registered")


async def test_a_controller_without_tls_is_told_as_that(
    controller: MemoryController, speed: Path, tmp_path: Path
) -> None:
    async with agent(controller.address, tmp_path, speed, tls=True) as running:
        await running.wait_for_log("the controller cannot be reached")
        assert "does not speak TLS here: use --insecure, or give it --tls-cert" in running.log[-1]["error"]
    assert all("time" in one for one in running.log)  # gRPC says nothing of its own between the lines


async def told_to_a_worker(running: AgentProcess) -> str:
    """The environment of the one that runs; while it becomes another program it shows none."""
    found: list[str] = []

    def works() -> bool:
        found[:] = running.workers()
        return any(found)

    await eventually(works, "it works")
    (environment,) = found
    return environment


async def test_one_agent_for_one_state_folder(controller: MemoryController, speed: Path, tmp_path: Path) -> None:
    async with agent(controller.address, tmp_path, speed) as first:
        await first.wait_for_log("registered")
        async with agent(controller.address, tmp_path, speed, "--name", "other") as second:
            assert await second.ended() == 1
        assert f"another agent (process {first.process.pid}) uses {tmp_path}" in second.log[-1]["why"]
        assert len(controller.calls("RegisterNode")) == 1


async def test_certificates_that_are_none_are_told_at_once(speed: Path, tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    files.issue()
    other = files.key.read_bytes()
    files.issue()
    files.key.write_bytes(other)
    for flags in (files.flags, ("--ca", __file__), ("--ca", "/none"), ("--cert", str(files.cert))):
        async with agent("localhost:1", tmp_path / "state", speed, *flags, tls=True) as running:
            assert await running.ended() == 2
        assert "--" in running.log[-1]["why"] or "/none" in running.log[-1]["why"]


class Certificates:
    """Of a controller and an agent, in files that are replaced."""

    def __init__(self, folder: Path) -> None:
        self.ca, self.cert, self.key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        self.flags = ("--ca", str(self.ca), "--cert", str(self.cert), "--key", str(self.key))

    def issue(self) -> grpc.ServerCredentials:
        """All of them anew; what the controller shows, and asks for."""
        authority = Authority()
        certificate, key = authority.client("machine")
        self.ca.write_bytes(authority.certificate)
        self.cert.write_bytes(certificate)
        self.key.write_bytes(key)
        certificate, key = authority.server()
        return grpc.ssl_server_credentials([(key, certificate)], authority.certificate, require_client_auth=True)


async def test_certificates_are_checked_on_both_sides_and_may_be_replaced(
    clips: Path, speed: Path, tmp_path: Path
) -> None:
    files = Certificates(tmp_path)
    async with MemoryController(files.issue()) as controller:
        async with agent(controller.address, tmp_path / "other", speed, "--ca", str(files.ca), tls=True) as unknown:
            await unknown.wait_for_log("the controller cannot be reached")  # it has no certificate to show
        assert all("time" in one for one in unknown.log)  # no line of another kind than ours
        async with agent(controller.address, tmp_path / "state", speed, *files.flags, tls=True) as running:
            controller.place_long(clips)
            await eventually(running.workers, "it works")
            await controller.stop()
            controller.credentials = files.issue()
            await controller.start()
            await eventually(lambda: "uid-0" in controller.results, "it is reported by the new ones")
            controller.place_short(clips, "uid-1")
            await eventually(lambda: "uid-1" in controller.results, "and work goes on")
            beats = len(controller.calls("Heartbeat"))
            await eventually(lambda: len(controller.calls("Heartbeat")) > beats, "as do heartbeats")
    assert {one.request.node_id for one in controller.received if one.method == "Heartbeat"} == {"default/machine"}


@pytest.mark.parametrize("code", [grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.PERMISSION_DENIED])
async def test_refused_it_says_so_and_tries_again(
    controller: MemoryController, speed: Path, tmp_path: Path, code: grpc.StatusCode
) -> None:
    controller.refusals["RegisterNode"] = code
    async with agent(controller.address, tmp_path, speed) as running:
        await running.wait_for_log("the controller refuses this agent")
        assert running.log[-1]["level"] == "error"
        assert running.log[-1]["why"] == f"{code.name}: so it [31mis"
        assert "--name" in running.log[-1]["advice"]
        controller.refusals.clear()
        await running.wait_for_log("registered")


async def test_what_makes_no_sense_ends_it(controller: MemoryController, speed: Path, tmp_path: Path) -> None:
    controller.refusals["RegisterNode"] = grpc.StatusCode.INVALID_ARGUMENT
    async with agent(controller.address, tmp_path, speed) as running:
        assert await running.ended() == 2
