"""Requests to score: by URI and by upload, with models and options, their errors, and cached answers."""

import asyncio
import csv
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import VMAFX
from tests.support.registry import learned_model, make_version, running_registry
from tests.support.serve_process import ServeProcess
from tests.support.video import ffmpeg, lossless, scene
from tests.support.waiting import eventually
from tests.support.webserver import WebServer, has
from vmafx.scoring.learned import encode_model
from vmafx.training.registry import ModelRepository

CACHED = "vmafx_serve_cached_answers_total"


@pytest.fixture(scope="module")
def expected(clips: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `vmafx score` says about the clips."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path_factory.mktemp("home"))}
    command = [VMAFX, "score", str(clips / "reference.mkv"), str(clips / "distorted.mp4"), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def test_clips_are_scored_by_file_uri_as_by_the_command(
    server: ServeProcess, clips: Path, expected: dict[str, Any]
) -> None:
    reply = await server.score(clips / "reference.mkv", clips / "distorted.mp4")
    assert reply.status == 200, reply.body
    result = reply.json()
    for name in ("score", "features", "frames", "model", "key", "width", "height"):
        assert result[name] == expected[name], name
    assert result["reference"]["uri"] == (clips / "reference.mkv").as_uri()
    assert reply.headers["X-Request-Id"]


async def test_clips_are_scored_by_path(server: ServeProcess, clips: Path, expected: dict[str, Any]) -> None:
    reply = await server.score(str(clips / "reference.mkv"), str(clips / "distorted.mp4"))
    assert (reply.status, reply.json()["score"]) == (200, expected["score"])


async def test_clips_are_fetched_from_a_web_server(
    server: ServeProcess, clips: Path, web: WebServer, expected: dict[str, Any]
) -> None:
    uri = web.serve("/distorted.mp4", has((clips / "distorted.mp4").read_bytes()), login="user:secret")
    reply = await server.score(clips / "reference.mkv", f"{uri}?signature=abc")
    assert reply.status == 200, reply.body
    assert reply.json()["score"] == expected["score"]
    assert reply.json()["distorted"]["uri"] == f"http://127.0.0.1:{web.port}/distorted.mp4"
    for text in (reply.body.decode(), (await server.get("/v1/jobs")).body.decode(), server.log.read_text()):
        assert "secret" not in text
        assert "signature" not in text


async def test_clips_are_uploaded(server: ServeProcess, clips: Path, expected: dict[str, Any]) -> None:
    reply = await server.upload(clips / "reference.mkv", clips / "distorted.mp4", options={"features": ["psnr"]})
    assert reply.status == 200, reply.body
    result = reply.json()
    assert result["score"] == expected["score"]
    assert "psnr_y" in result["features"]
    assert (result["reference"]["uri"], result["distorted"]["uri"]) == ("ref.mkv", "dist.mp4")
    await eventually(lambda: list((server.data / "clips").iterdir()) == [], "no clip is left")


async def test_an_upload_and_a_uri_are_mixed(server: ServeProcess, clips: Path, expected: dict[str, Any]) -> None:
    mixed = await server.upload((clips / "reference.mkv").as_uri(), clips / "distorted.mp4")
    assert (mixed.status, mixed.json()["score"]) == (200, expected["score"])
    assert mixed.json()["distorted"]["uri"] == "dist.mp4"


async def test_raw_video_is_uploaded_with_its_format(server: ServeProcess, tmp_path: Path) -> None:
    clip = scene(frames=3)
    clip.write(tmp_path / "raw.yuv")
    layout = {"width": clip.size[0], "height": clip.size[1], "pixelFormat": clip.pixel_format}
    raw = tmp_path / "raw.yuv"
    reply = await server.upload(raw, raw, referenceFormat=layout, distortedFormat=layout)
    assert (reply.status, reply.json()["frames"]) == (200, 3), reply.body


async def test_the_same_upload_is_answered_from_memory_with_its_own_name(server: ServeProcess, clips: Path) -> None:
    clip = clips / "distorted.mp4"
    names = ("a.mp4", "b.mp4")
    first = await server.upload(clip, clip, names=names)
    before = await server.metric(CACHED)
    again = await server.upload(clip, clip, names=names)
    assert await server.metric(CACHED) == before + 1
    assert (again.json()["cached"], again.json()["score"]) == (True, first.json()["score"])
    other = await server.upload(clip, clip, names=("x.mp4", "y.mp4"))
    result = other.json()
    assert (result["reference"]["uri"], result["distorted"]["uri"]) == ("x.mp4", "y.mp4")
    assert (result["key"], result["cached"]) == (first.json()["key"], True)
    again = await server.upload(clip, clip, names=names)
    assert again.json()["reference"]["uri"] == "a.mp4"
    assert (await server.get(result["links"]["self"])).json()["key"] == result["key"]


async def test_a_file_that_changes_is_scored_again(tmp_path: Path, clips: Path) -> None:
    media = tmp_path / "media"
    media.mkdir()
    reference, distorted = media / "reference.mkv", media / "distorted.mp4"
    shutil.copy(clips / "reference.mkv", reference)
    shutil.copy(clips / "distorted.mp4", distorted)
    async with ServeProcess(tmp_path, roots=media) as server:
        first = (await server.score(reference, distorted)).json()

        async def is_known() -> bool:
            assert (await server.score(reference, distorted)).json()["score"] == first["score"]
            return await server.metric(CACHED) > 0

        await eventually(is_known, "the answer is known")
        status = distorted.stat()
        ffmpeg("-i", reference, "-c:v", "libx264", "-crf", "48", media / "worse.mp4")
        distorted.write_bytes((media / "worse.mp4").read_bytes())
        os.utime(distorted, ns=(status.st_atime_ns, status.st_mtime_ns))
        known = await server.metric(CACHED)
        assert (await server.score(reference, distorted)).json()["score"] < first["score"]
        assert await server.metric(CACHED) == known


@pytest.mark.parametrize("link", ["page", "html"])
async def test_a_report_has_pictures_as_soon_as_there_is_a_score(server: ServeProcess, clips: Path, link: str) -> None:
    options = {"pooling": {"page": "p10", "html": "p90"}[link]}  # not scored before
    result = (await server.score(clips / "reference.mkv", clips / "distorted.mp4", options=options)).json()
    assert not result["cached"]
    assert b"data:image/jpeg" in (await server.get(result["links"][link])).body


async def test_the_reports_of_a_result(server: ServeProcess, clips: Path, expected: dict[str, Any]) -> None:
    result = (await server.score(clips / "reference.mkv", clips / "distorted.mp4")).json()
    links = result["links"]
    report = (await server.get(links["json"])).json()
    assert expected["score"] in (report.get("score"), report.get("result", {}).get("score"))
    rows = list(csv.DictReader((await server.get(links["csv"])).body.decode().splitlines()))
    assert len(rows) == result["frames"]
    for link in (links["html"], links["page"]):
        reply = await server.get(link)
        assert reply.body.lower().startswith(b"<!doctype html>")
    assert "attachment" in (await server.get(links["html"])).headers["Content-Disposition"]
    assert b"<svg" in (await server.get(links["svg"])).body
    assert (await server.get(links["png"])).body.startswith(b"\x89PNG")
    missing = await server.get("/v1/results/" + "0" * 64 + "/report.svg?feature=psnr_y")
    assert (missing.status, missing.json()["code"]) == (404, "NOT_FOUND")
    missing = await server.get("/v1/results/" + "0" * 64)
    assert (missing.status, missing.json()["code"]) == (404, "NOT_FOUND")


async def test_the_curve_of_each_feature(server: ServeProcess, clips: Path) -> None:
    options = {"features": ["psnr"]}
    result = (await server.score(clips / "reference.mkv", clips / "distorted.mp4", options=options)).json()
    svg, png = result["links"]["svg"], result["links"]["png"]
    for feature in result["features"]:
        reply = await server.get(f"{svg}?feature={feature}")
        assert reply.status == 200, reply.body
        assert f'attachment; filename="{feature}-{result["key"][:12]}.svg"' in reply.headers["Content-Disposition"]
    assert b"PSNR Y: " in (await server.get(f"{svg}?feature=psnr_y")).body
    assert (await server.get(f"{png}?feature=psnr_y")).body.startswith(b"\x89PNG")
    for link, message in (
        (f"{svg}?feature=ssim", "feature must be one that was measured: adm2, "),
        (f"{svg}?feature=../x%0d%0aSet-Cookie:a", "feature must be one that was measured"),
        (f"{svg}?feature=", "feature must be one that was measured"),
        (f"{svg}?feature=psnr_y&feature=vmaf", "the parameter feature is given 2 times; give it once"),
        (f"{result['links']['csv']}?feature=psnr_y", "feature is for curves"),
    ):
        reply = await server.get(link)
        assert (reply.status, reply.json()["code"]) == (400, "INVALID_ARGUMENT")
        assert message in reply.json()["detail"]


@pytest.mark.parametrize(
    ("more", "status", "part", "message"),
    [
        ({"distorted": "file:///nowhere/x.mp4"}, 422, "distorted", "outside the folders"),
        ({"distorted": "ftp://x/y.mp4"}, 422, "distorted", "not supported"),
        ({"distorted": "http://[::1"}, 422, "distorted", "not a valid"),
        ({"distorted": ""}, 400, None, "distorted is missing"),
        ({"model": "nope"}, 422, "model", "/v1/models lists"),
        ({"model": "/etc/passwd"}, 422, "model", "is not served"),
        ({"backend": "cuda"}, 422, "options", "cuda"),
        ({"backend": "abacus"}, 400, None, "abacus"),
        ({"options": {"size": "big"}}, 422, "options", "size must be"),
        ({"options": {"subsample": 0}}, 422, "options", "subsample"),
        ({"options": {"pooling": "sum"}}, 400, None, "options.pooling"),
        ({"options": {"threads": 4}}, 400, None, "threads"),
        ({"deadlineSeconds": 0}, 400, None, "deadlineSeconds"),
        ({"surprise": 1}, 400, None, "surprise"),
    ],
)
async def test_what_is_wrong_with_a_request_is_named(
    server: ServeProcess, clips: Path, more: dict[str, Any], status: int, part: str | None, message: str
) -> None:
    body = {"reference": (clips / "reference.mkv").as_uri(), "distorted": (clips / "distorted.mp4").as_uri(), **more}
    reply = await server.call("POST", "/v1/score", json=body)
    problem = reply.json()
    assert (reply.status, problem.get("part")) == (status, part), problem
    assert message in problem["detail"]


async def test_a_remedy_is_an_option_of_the_request(server: ServeProcess, clips: Path, tmp_path: Path) -> None:
    short = lossless(scene(frames=4), tmp_path / "short.mkv")
    reply = await server.upload(clips / "reference.mkv", short)
    problem = reply.json()
    assert (reply.status, problem["part"]) == (422, "distorted")
    assert "options.shortest" in problem["remedy"]
    assert "--" not in problem["remedy"]
    reply = await server.upload(clips / "reference.mkv", short, options={"shortest": True})
    assert (reply.status, reply.json()["frames"]) == (200, 4)


async def test_the_models_are_listed_and_can_be_named(server: ServeProcess, clips: Path) -> None:
    models = (await server.get("/v1/models")).json()["models"]
    assert [model["name"] for model in models] == ["vmaf_v0.6.1", "vmaf_v0.6.1neg", "vmaf_4k_v0.6.1"]
    assert models[0] == {"name": "vmaf_v0.6.1", "default": True}
    results = [
        (await server.score(clips / "reference.mkv", clips / "distorted.mp4", model=model["name"])).json()
        for model in models
    ]
    assert [result["model"] for result in results] == [model["name"] for model in models]
    assert len({result["score"] for result in results}) > 1


async def test_the_model_of_the_server_is_a_built_in_one_by_name(tmp_path: Path, clips: Path) -> None:
    async with ServeProcess(tmp_path, roots=clips, MODEL_REF="vmaf_v0.6.1neg") as server:
        result = (await server.score(clips / "reference.mkv", clips / "distorted.mp4")).json()
        assert result["model"] == "vmaf_v0.6.1neg"
        assert (await server.get("/v1/models")).json()["models"][0]["name"] == "vmaf_v0.6.1neg"


async def test_the_model_of_the_server_is_a_learned_one_by_path_outside_the_roots(tmp_path: Path, clips: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(encode_model(learned_model()))
    async with ServeProcess(tmp_path, roots=clips, MODEL_REF=str(path)) as server:
        path.unlink()  # it was copied
        (info, *_) = (await server.get("/v1/models")).json()["models"]
        assert (info["name"], info["learned"], info["base"]) == (str(path), True, "vmaf_v0.6.1")
        result = (await server.score(clips / "reference.mkv", clips / "distorted.mp4")).json()
        assert (result["model"], result["base"]) == (str(path), "vmaf_v0.6.1")
        assert "vmaf_base" in result["features"]
        assert str(server.data) not in json.dumps(result)
        report = (await server.get(result["links"]["json"])).body.decode()
        assert str(server.data) not in report
        plain = await server.score(clips / "reference.mkv", clips / "distorted.mp4", model="vmaf_v0.6.1")
        assert plain.json()["score"] == pytest.approx(result["features"]["vmaf_base"]["mean"])


async def test_the_model_of_the_server_is_a_version_in_a_registry(tmp_path: Path, clips: Path) -> None:
    """Requests reach no private address, but whoever starts the server has chosen this one."""
    with running_registry(tmp_path / "registry") as registry:
        version = make_version(tmp_path / "versions", learned_model())
        ModelRepository(f"{registry.address}/team/vmaf").push(version, 1)
        model = f"oci://{registry.address}/team/vmaf@{version.digest}"
        async with ServeProcess(tmp_path, roots=clips, MODEL_REF=model, VMAFX_MEDIA_ALLOW_PRIVATE="false") as server:
            result = (await server.score(clips / "reference.mkv", clips / "distorted.mp4")).json()
            assert (result["model"], result["base"]) == (model, "vmaf_v0.6.1")
            (info, *_) = (await server.get("/v1/models")).json()["models"]
            assert (info["name"], info["learned"]) == (model, True)
            refused = await server.score(clips / "reference.mkv", f"http://{registry.address}/clip.mp4")
            assert refused.status == 422


async def test_models_of_a_folder_are_served_by_name(tmp_path: Path, clips: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "mine.json").write_bytes(encode_model(learned_model()))
    async with ServeProcess(tmp_path, roots=clips, VMAFX_MODEL_DIR=str(folder)) as server:
        assert "mine" in [model["name"] for model in (await server.get("/v1/models")).json()["models"]]
        first = (await server.score(clips / "reference.mkv", clips / "distorted.mp4", model="mine")).json()
        assert first["model"] == "mine"
        (folder / "mine.json").write_bytes(encode_model(learned_model(offset=0.1)))
        again = (await server.score(clips / "reference.mkv", clips / "distorted.mp4", model="mine")).json()
        assert again["score"] != first["score"]  # a model that changed is another one


async def test_a_server_whose_model_is_missing_is_not_ready_and_one_with_an_unknown_name_ends(
    tmp_path: Path, clips: Path
) -> None:
    async with ServeProcess(tmp_path, roots=clips, ready=False, MODEL_REF=str(tmp_path / "later.json")) as server:
        reply = await server.get("/readyz")
        assert (reply.status, reply.body) == (503, f"the model {tmp_path / 'later.json'} is not loaded yet\n".encode())
        accepted = await server.score(clips / "reference.mkv", clips / "distorted.mp4", prefer="respond-async")
        assert accepted.status == 202
        assert await server.stop() == 0  # it does not wait for jobs that cannot start
    assert "there is no model 'nope'" in await refusal_to_start(server, MODEL_REF="nope")


async def test_a_server_without_an_engine_for_its_backend_ends(tmp_path: Path) -> None:
    """It would score on another one otherwise, as on the CPU of a machine whose GPU was asked for."""
    message = await refusal_to_start(ServeProcess(tmp_path), VMAFX_BACKEND="cuda")
    assert "this machine has no engine for the backend cuda (an NVIDIA GPU): torch is not installed" in message


async def refusal_to_start(server: ServeProcess, **variables: str) -> str:
    """The log of a server that ends by itself with these variables."""
    environment = {**server.environment, **variables}
    done = await asyncio.to_thread(
        subprocess.run, [VMAFX, "serve"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    return done.stderr


async def test_the_backend_of_the_server_is_that_of_its_requests(tmp_path: Path, clips: Path) -> None:
    async with ServeProcess(tmp_path, "--backend", "cpu", roots=clips) as server:
        assert (await server.score(clips / "reference.mkv", clips / "distorted.mp4")).status == 200
        reply = await server.score(clips / "reference.mkv", clips / "distorted.mp4", backend="hip")
        assert reply.status == 422
        assert "no engine for the backend hip (an AMD GPU): torch is not installed" in reply.json()["message"]
