"""The identity of an agent: tokens, certificates, name, state folder."""

from pathlib import Path

import grpc
import pytest

from tests.support.agents import AgentProcess, agent, children, read
from tests.support.frontdoor import FrontDoor
from tests.support.waiting import eventually
from vmafx.devcluster.pki import Authority


async def test_a_superseded_agent_exits_and_says_what_to_do(
    door: FrontDoor, clips: Path, speed: Path, tmp_path: Path
) -> None:
    door.place_long(clips)
    async with agent(door.address, tmp_path, speed) as running:
        await eventually(running.workers, "a worker runs")
        (worker,) = children(running.process.pid)
        door.superseded = True
        door.sessions.clear()
        door.change()  # wakes the waiting pull, whose response does not give the reason
        assert await running.ended() == 2
        assert not read(worker, "cmdline")
        assert len(door.calls("RegisterNode")) == 1  # else two agents of one name would replace each other forever
    why = running.said[-1]["why"]
    assert "another agent has registered as default/machine" in why
    assert "--name" in why


async def test_the_token_is_read_for_every_call_and_kept_from_workers(
    door: FrontDoor, clips: Path, speed: Path, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    state = tmp_path / "state"
    token.write_text("first\n")
    variables = {"VMAFX_AGENT_TOKEN_FILE": str(token), "VMAFX_MEDIA_ALLOW_PRIVATE": "true", "AWS_PROFILE": "clips"}
    async with agent(door.address, state, speed, variables=variables | {"SECRET": "x"}) as running:
        await eventually(lambda: door.calls("PullWork"), "it pulls work")
        assert {one.authorization for one in door.heard} == {"Bearer first"}
        token.write_text("second")
        door.place_long(clips)
        environment = await worker_environment(running)
        await eventually(lambda: door.heard[-1].authorization == "Bearer second", "calls use the new token")
    names = {one.partition("=")[0] for one in environment.split("\0")}
    assert {"VMAFX_MEDIA_ALLOW_PRIVATE", "AWS_PROFILE", "VMAFX_WORK"} <= names
    assert not [name for name in names if name.startswith(("VMAFX_AGENT", "VMAFX_CONTROLLER", "SECRET"))]


async def test_a_missing_token_file_is_logged_until_it_is_back(door: FrontDoor, speed: Path, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    door.refusals["RegisterNode"] = grpc.StatusCode.UNAUTHENTICATED
    async with agent(door.address, tmp_path / "state", speed, "--token-file", str(token)) as running:
        await running.says("registration refused")
        assert "--token-file" in running.said[-1]["advice"]
        token.unlink()
        await running.says("no token to register with")
        assert running.said[-1]["why"] == f"the token file {token} cannot be read: No such file or directory"
        assert not running.has_said("controller unreachable")
        door.refusals.clear()
        token.write_text("second")
        await running.says("registered")


async def test_a_controller_without_tls_is_named_in_the_error(door: FrontDoor, speed: Path, tmp_path: Path) -> None:
    async with agent(door.address, tmp_path, speed, tls=True) as running:
        await running.says("controller unreachable")
        assert (
            "does not use TLS: start the agent with --insecure, or the controller with --tls-cert"
            in running.said[-1]["error"]
        )
    assert all("time" in one for one in running.said)  # gRPC prints nothing of its own


async def worker_environment(running: AgentProcess) -> str:
    """The environment of the running worker; empty during its exec, so that is waited out."""
    found: list[str] = []

    def runs() -> bool:
        found[:] = running.workers()
        return any(found)

    await eventually(runs, "a worker runs")
    (environment,) = found
    return environment


async def test_a_second_agent_in_the_same_state_folder_exits(door: FrontDoor, speed: Path, tmp_path: Path) -> None:
    async with agent(door.address, tmp_path, speed) as first:
        await first.says("registered")
        async with agent(door.address, tmp_path, speed, "--name", "other") as second:
            assert await second.ended() == 1
        assert f"another agent (process {first.process.pid}) uses {tmp_path}" in second.said[-1]["why"]
        assert len(door.calls("RegisterNode")) == 1


async def test_unusable_certificates_end_the_agent_at_once(speed: Path, tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    files.issue()
    other = files.key.read_bytes()
    files.issue()
    files.key.write_bytes(other)
    for flags in (files.flags, ("--ca", __file__), ("--ca", "/none"), ("--cert", str(files.cert))):
        async with agent("localhost:1", tmp_path / "state", speed, *flags, tls=True) as running:
            assert await running.ended() == 2
        assert "--" in running.said[-1]["why"] or "/none" in running.said[-1]["why"]


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
    async with FrontDoor(files.issue()) as door:
        async with agent(door.address, tmp_path / "other", speed, "--ca", str(files.ca), tls=True) as unknown:
            await unknown.says("controller unreachable")  # it has no client certificate
        assert all("time" in one for one in unknown.said)  # gRPC prints nothing of its own
        async with agent(door.address, tmp_path / "state", speed, *files.flags, tls=True) as running:
            door.place_long(clips)
            await eventually(running.workers, "a worker runs")
            await door.stop()
            door.credentials = files.issue()
            await door.start()
            await eventually(lambda: "uid-0" in door.results, "the result is reported with the new certificates")
            door.place_short(clips, "uid-1")
            await eventually(lambda: "uid-1" in door.results, "the next job is scored")
            beats = len(door.calls("Heartbeat"))
            await eventually(lambda: len(door.calls("Heartbeat")) > beats, "heartbeats continue")
    assert {one.request.node_id for one in door.heard if one.method == "Heartbeat"} == {"default/machine"}


@pytest.mark.parametrize("code", [grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.PERMISSION_DENIED])
async def test_a_refused_registration_is_logged_and_retried(
    door: FrontDoor, speed: Path, tmp_path: Path, code: grpc.StatusCode
) -> None:
    door.refusals["RegisterNode"] = code
    async with agent(door.address, tmp_path, speed) as running:
        await running.says("registration refused")
        assert running.said[-1]["level"] == "error"
        assert running.said[-1]["why"] == f"{code.name}: so it [31mis"
        assert "--name" in running.said[-1]["advice"]
        door.refusals.clear()
        await running.says("registered")


async def test_an_invalid_registration_ends_the_agent(door: FrontDoor, speed: Path, tmp_path: Path) -> None:
    door.refusals["RegisterNode"] = grpc.StatusCode.INVALID_ARGUMENT
    async with agent(door.address, tmp_path, speed) as running:
        assert await running.ended() == 2
