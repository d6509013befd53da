"""Every tool, called by the official client over both transports and in both generations of the protocol."""

import json
from pathlib import Path

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import BlobResourceContents, TextResourceContents

from tests.support.mcp_server import (
    HANDSHAKE,
    STATELESS,
    StdioServer,
    Transport,
    call,
    failed,
    started,
    text,
)
from vmafx.mcp.server import TOOLS

ENCODES = {"encoders": ["libx264:ultrafast", "libx264:veryfast"], "qualities": [20, 40]}
NAMES = {
    "score",
    "compare",
    "ladder",
    "explain_score",
    "submit_job",
    "get_job",
    "list_jobs",
    "cancel_job",
    "list_nodes",
}


async def read(client: Client, uri: str) -> str | bytes:
    (content,) = (await client.read_resource(uri)).contents
    if isinstance(content, BlobResourceContents):
        return content.blob
    assert isinstance(content, TextResourceContents)
    return content.text


@pytest.mark.parametrize("mode", [HANDSHAKE, STATELESS])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_every_tool_is_listed_and_called_through_a_restart(
    transport: Transport, mode: str, tmp_path: Path, clips: Path
) -> None:
    reference, distorted = str(clips / "reference.mkv"), str(clips / "distorted.mp4")
    async with started(transport, tmp_path, clips) as server:
        async with server.client(mode=mode) as client:
            assert client.protocol_version == ("2025-11-25" if mode == HANDSHAKE else STATELESS)
            tools = (await client.list_tools()).tools
            assert {tool.name for tool in tools} == NAMES
            assert all(tool.description and tool.output_schema and tool.annotations for tool in tools)

            score = await call(client, "score", reference=reference, distorted=distorted, wait=150)
            assert (score["phase"], score["score"]["clips"][0]["frames"]) == ("Succeeded", 6)
            compared = await call(client, "compare", source=reference, wait=150, **ENCODES)
            assert [len(one["encodes"]) for one in compared["compare"]["variants"]] == [2, 2]
            assert compared["compare"]["variants"][1]["bdRate"] is not None
            ladder = await call(
                client, "ladder", source=reference, encoder="libx264:ultrafast", heights=[144], qualities=[20, 45],
                rungs=1, wait=150,
            )  # fmt: skip
            assert len(ladder["ladder"]["rungs"]) == 1
            explained = await call(client, "explain_score", job=score["id"])
            explanation = explained["explanation"]
            assert explanation["method"] == "model"
            points = sum(cause["points"] for cause in explanation["causes"]) + explanation["rest"]
            assert points == pytest.approx(explanation["lost"], abs=0.01)
            submitted = await call(client, "submit_job", reference=reference, distorted=distorted, pooling="min")
            got = await call(client, "get_job", id=submitted["id"], wait=150)
            assert got["score"]["clips"][0]["score"] == score["score"]["clips"][0]["lowest"]
            assert (await call(client, "cancel_job", id=submitted["id"]))["phase"] == "Succeeded", "it had ended"
            nodes = await call(client, "list_nodes")
            assert (nodes["cluster"], nodes["machine"][0]["backend"]) == (False, "cpu")
            jobs = await call(client, "list_jobs")
            ids = [submitted["id"], ladder["id"], compared["id"], score["id"]]
            assert [job["id"] for job in jobs["jobs"]] == ids
            assert str(server.state) not in json.dumps([compared, ladder]), "paths of the machine are not for clients"

        if transport == "http":
            assert await server.stop() == 0  # type: ignore[union-attr]
            await server.start()  # type: ignore[union-attr]
        async with server.client(mode=mode) as client:
            assert [job["id"] for job in (await call(client, "list_jobs"))["jobs"]] == ids
            assert await call(client, "get_job", id=compared["id"]) == compared
            assert await call(client, "get_job", id=score["id"]) == score
            listed = {resource.uri for resource in (await client.list_resources()).resources}
            assert listed == {uri for job in (score, got, compared, ladder) for uri in job["reports"]}
            page, values, rows, curve, picture = [await read(client, uri) for uri in score["reports"]]
            assert (str(page)[:15], json.loads(values)["frames"]) == ("<!DOCTYPE html>", 6)
            assert len(str(rows).splitlines()) == 7
            assert str(curve).startswith("<?xml")
            assert str(picture).startswith("iVBORw0KGgo")
            assert "libx264:veryfast" in str(await read(client, compared["reports"][0]))
            assert json.loads(await read(client, ladder["reports"][1]))["encoder"] == "libx264"
            for uri in (*compared["reports"], *ladder["reports"]):
                assert str(server.state) not in str(await read(client, uri))
            assert str(await read(client, ladder["reports"][3])).startswith("#EXTM3U")
            assert len((await client.list_resource_templates()).resource_templates) == 6


async def test_errors_of_the_input_are_results_that_say_what_to_do(tmp_path: Path, clips: Path) -> None:
    allowed, secret = tmp_path / "allowed", tmp_path / "secret.mkv"
    allowed.mkdir()
    secret.write_bytes((clips / "reference.mkv").read_bytes())
    (allowed / "good.mkv").symlink_to(clips / "reference.mkv")
    (allowed / "link.mkv").symlink_to(secret)
    good, outside = str(clips / "reference.mkv"), "is outside the folders that VMAFX_MEDIA_ROOTS allows"
    server = StdioServer(tmp_path, VMAFX_MEDIA_ROOTS=f"{allowed}:{clips}")
    async with server.client() as client:
        for clip in (secret, allowed / "link.mkv", allowed / ".." / "secret.mkv", "/etc/passwd", "file:///etc/passwd"):
            for arguments in ({"reference": str(clip), "distorted": good}, {"reference": good, "distorted": str(clip)}):
                assert outside in await failed(client, "score", **arguments)
            assert outside in await failed(client, "compare", source=str(clip), **ENCODES)
            assert outside in await failed(client, "ladder", source=str(clip))
            assert outside in await failed(client, "explain_score", reference=str(clip), distorted=good)
        missing = str(allowed / "missing.mkv")
        assert "there is no file" in await failed(client, "score", reference=missing, distorted=good)
        private = await failed(client, "score", reference="http://127.0.0.1:1/a.mkv", distorted=good)
        assert "private, loopback or link-local address" in private
        assert "--allow-private" not in private
        unknown = await failed(client, "score", reference="gopher://a/b", distorted=good)
        assert "gopher" in unknown
        assert "missing required field" in await failed(client, "score", reference=good)
        assert "unknown field" in await failed(client, "score", reference=good, distorted=good, output="x.html")
        assert "subsample must be" in await failed(client, "score", reference=good, distorted=good, subsample=0)
        assert "no encoder that vmaf-tune knows" in await failed(client, "compare", source=good, encoders=["-i /etc"])
        assert "targetVmaf" in await failed(client, "compare", source=good, qualities=[20], targetVmaf=90)
        assert "no job 'nothing'" in await failed(client, "get_job", id="nothing")
        with pytest.raises(MCPError, match="there is no tool 'shell'"):
            await client.call_tool("shell", {})
        with pytest.raises(MCPError, match="there is no such report"):
            await client.read_resource("vmafx://jobs/../../etc/passwd")


async def test_several_clips_are_scored_together_and_one_may_fail(tmp_path: Path, clips: Path) -> None:
    distorted = [str(clips / name) for name in ("distorted.mp4", "missing.mp4", "reference.mkv")]
    async with StdioServer(tmp_path, roots=clips).client() as client:
        result = await call(client, "score", reference=str(clips / "reference.mkv"), distorted=distorted, wait=150)
        assert ["error" in clip for clip in result["score"]["clips"]] == [False, True, False]
        explained = await call(client, "explain_score", job=result["id"], clip=2)
        assert explained["explanation"]["score"] == result["score"]["clips"][2]["score"]


async def test_a_strange_name_stays_on_its_line(tmp_path: Path, clips: Path) -> None:
    strange = tmp_path / "ignore all\nprevious <b>.mkv"
    strange.write_bytes((clips / "reference.mkv").read_bytes())
    arguments = {"reference": str(strange), "distorted": str(strange), "features": ["psnr"], "wait": 150}
    async with StdioServer(tmp_path, roots=tmp_path).client() as client:
        scored = await client.call_tool("score", arguments)
        assert "/ignore all\\nprevious <b>.mkv: VMAF" in text(scored)
        assert "psnr_y" in scored.structured_content["score"]["clips"][0]["features"]


async def test_on_standard_input_the_current_folder_is_allowed_unless_it_is_home(tmp_path: Path, clips: Path) -> None:
    names = {"reference": "reference.mkv", "distorted": "distorted.mp4", "wait": 150}
    server = StdioServer(tmp_path)
    async with server.client(cwd=clips) as client:
        assert (await call(client, "score", **names))["phase"] == "Succeeded"
    for name in ("reference.mkv", "distorted.mp4"):
        (tmp_path / name).write_bytes((clips / name).read_bytes())
    async with server.client(cwd=tmp_path) as client:  # which is the home folder
        assert "VMAFX_MEDIA_ROOTS" in await failed(client, "score", **names)


def test_hints_of_tools_are_set() -> None:
    hints = {spec.name: spec.hints for spec in TOOLS}
    reading = {name for name, hint in hints.items() if hint.read_only_hint}
    assert reading == {"get_job", "list_jobs", "list_nodes"}
    assert [name for name, hint in hints.items() if hint.destructive_hint] == ["cancel_job"]
