"""The identity of an agent: tokens, certificates, name, state folder."""

from pathlib import Path

import grpc
import pytest

from tests.support.agent_process import AgentProcess, agent, children, read
from tests.support.memory_controller import MemoryController
from tests.support.waiting import eventually
from vmafx.devcluster.pki import Authority


async def test_a_superseded_agent_exits_and_says_what_to_do(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    controller.place_long(clips)
    async with agent(controller.address, tmp_path, speed) as running:
        await eventually(running.workers, "a worker runs")
        (worker,) = children(running.process.pid)
        controller.superseded = True
        controller.sessions.clear()
        controller.change()  # wakes the waiting pull, whose response does not give the reason
        assert await running.ended() == 2
        assert not read(worker, "cmdline")
        assert (
            len(controller.calls("RegisterNode")) == 1
        )  # else two agents of one name would replace each other forever
    why = running.log[-1]["error"]
    assert "another agent has registered as default/machine" in why
    assert "--name" in why


async def test_the_token_is_read_for_every_call_and_kept_from_workers(
    controller: MemoryController, clips: Path, speed: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    state = tmp_path / "state"
    token.write_text("first\n")
    variables = {"VMAFX_AGENT_TOKEN_FILE": str(token), "VMAFX_MEDIA_ALLOW_PRIVATE": "true", "AWS_PROFILE": "clips"}
    async with agent(controller.address, state, speed, variables=variables | {"SECRET": "x"}) as running:
        await eventually(lambda: controller.calls("PullWork"), "it pulls work")
        assert {one.authorization for one in controller.received} == {"Bearer first"}
        token.write_text("second")
        controller.place_long(clips)
        environment = await worker_environment(running)
        await eventually(lambda: controller.received[-1].authorization == "Bearer second", "calls use the new token")
    names = {one.partition("=")[0] for one in environment.split("\0")}
    assert {"VMAFX_MEDIA_ALLOW_PRIVATE", "AWS_PROFILE", "VMAFX_WORK"} <= names
    assert not [name for name in names if name.startswith(("VMAFX_AGENT", "VMAFX_CONTROLLER", "SECRET"))]


async def test_a_missing_token_file_is_logged_until_it_is_back(
    controller: MemoryController, speed: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    controller.refusals["RegisterNode"] = grpc.StatusCode.UNAUTHENTICATED
    async with agent(controller.address, tmp_path / "state", speed, "--token-file", str(token)) as running:
        await running.wait_for_log("registration refused")
        assert "--token-file" in running.log[-1]["advice"]
        token.unlink()
        await running.wait_for_log("no token to register with")
        assert running.log[-1]["error"] == f"the token file {token} cannot be read: No such file or directory"
        assert not running.has_logged("controller unreachable")
        controller.refusals.clear()
        token.write_text("second")
        await running.wait_for_log("registered")


async def test_a_controller_without_tls_is_named_in_the_error(
    controller: MemoryController, speed: Path, tmp_path: Path
) -> None:
    async with agent(controller.address, tmp_path, speed, tls=True) as running:
        await running.wait_for_log("controller unreachable")
        assert (
            "does not use TLS: start the agent with --insecure, or the controller with --tls-cert"
            in running.log[-1]["error"]
        )
    assert all("time" in one for one in running.log)  # gRPC prints nothing of its own


async def worker_environment(running: AgentProcess) -> str:
    """The environment of the running worker; empty during its exec, so that is waited out."""
    found: list[str] = []

    def runs() -> bool:
        found[:] = running.workers()
        return any(found)

    await eventually(runs, "a worker runs")
    (environment,) = found
    return environment


async def test_a_second_agent_in_the_same_state_folder_exits(
    controller: MemoryController, speed: Path, tmp_path: Path
) -> None:
    async with agent(controller.address, tmp_path, speed) as first:
        await first.wait_for_log("registered")
        async with agent(controller.address, tmp_path, speed, "--name", "other") as second:
            assert await second.ended() == 1
        assert f"another agent (process {first.process.pid}) uses {tmp_path}" in second.log[-1]["error"]
        assert len(controller.calls("RegisterNode")) == 1


async def test_unusable_certificates_end_the_agent_at_once(speed: Path, tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    files.issue()
    other = files.key.read_bytes()
    files.issue()
    files.key.write_bytes(other)
    for flags in (files.flags, ("--ca", __file__), ("--ca", "/none"), ("--cert", str(files.cert))):
        async with agent("localhost:1", tmp_path / "state", speed, *flags, tls=True) as running:
            assert await running.ended() == 2
        assert "--" in running.log[-1]["error"] or "/none" in running.log[-1]["error"]


class Certificates:
    """Certificates of a controller and an agent, in files that are replaced."""

    def __init__(self, folder: Path) -> None:
        self.ca, self.cert, self.key = folder / "ca.pem", folder / "cert.pem", folder / "key.pem"
        self.flags = ("--ca", str(self.ca), "--cert", str(self.cert), "--key", str(self.key))

    def issue(self) -> grpc.ServerCredentials:
        """Replace all files; returns the credentials of the controller, which requires client certificates."""
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
            await unknown.wait_for_log("controller unreachable")  # it has no client certificate
        assert all("time" in one for one in unknown.log)  # gRPC prints nothing of its own
        async with agent(controller.address, tmp_path / "state", speed, *files.flags, tls=True) as running:
            controller.place_long(clips)
            await eventually(running.workers, "a worker runs")
            await controller.stop()
            controller.credentials = files.issue()
            await controller.start()
            await eventually(lambda: "uid-0" in controller.results, "the result is reported with the new certificates")
            controller.place_short(clips, "uid-1")
            await eventually(lambda: "uid-1" in controller.results, "the next job is scored")
            beats = len(controller.calls("Heartbeat"))
            await eventually(lambda: len(controller.calls("Heartbeat")) > beats, "heartbeats continue")
    assert {one.request.node_id for one in controller.received if one.method == "Heartbeat"} == {"default/machine"}


@pytest.mark.parametrize("code", [grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.PERMISSION_DENIED])
async def test_a_refused_registration_is_logged_and_retried(
    controller: MemoryController, speed: Path, tmp_path: Path, code: grpc.StatusCode
) -> None:
    controller.refusals["RegisterNode"] = code
    async with agent(controller.address, tmp_path, speed) as running:
        await running.wait_for_log("registration refused")
        assert running.log[-1]["level"] == "error"
        assert running.log[-1]["error"] == f"{code.name}: so it [31mis"
        assert "--name" in running.log[-1]["advice"]
        controller.refusals.clear()
        await running.wait_for_log("registered")


async def test_an_invalid_registration_ends_the_agent(
    controller: MemoryController, speed: Path, tmp_path: Path
) -> None:
    controller.refusals["RegisterNode"] = grpc.StatusCode.INVALID_ARGUMENT
    async with agent(controller.address, tmp_path, speed) as running:
        assert await running.ended() == 2
