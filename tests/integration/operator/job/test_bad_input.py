"""Jobs with bad input: each fails in one attempt, and says which part is wrong and why."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.fleet import add_node, allow_pods, condition, operating, phase, reaches
from tests.support.kubelet import Kubelet
from tests.support.video import ffmpeg, lossless, scene
from tests.support.waiting import eventually
from tests.support.webserver import WebServer, has, redirects, says
from vmafx.api.job import FINISHED, VmafxJob
from vmafx.api.pod import EnvVar, PodOverlay
from vmafx.kube import JOBS, NAMESPACES, Client, ObjectKey
from vmafx.kube.core import EVENTS, PODS
from vmafx.kube.resources import UntypedObject

pytestmark = pytest.mark.timeout(400)  # `finished` runs all cases

NEAR = EnvVar("VMAFX_MEDIA_ALLOW_PRIVATE", "true")  # the web servers of these tests are on this machine


class Case(NamedTuple):
    """Changes of a valid spec, the part that is wrong, and a text in the message."""

    spec: dict[str, Any]
    part: str
    message: str


CASES = {
    "missing": Case({"distorted": "none.mp4"}, "distorted", "there is no file file:///"),
    "missing-reference": Case({"reference": "none.mp4"}, "reference", "there is no file file:///"),
    "empty": Case({"distorted": "empty.mp4"}, "distorted", "empty.mp4 is empty"),
    "folder": Case({"distorted": "."}, "distorted", "is a folder; it must be a regular file"),
    "text": Case({"distorted": "text.mp4"}, "distorted", "cannot read it"),
    "text-reference": Case({"reference": "text.mp4"}, "reference", "cannot read it"),
    "truncated": Case({"distorted": "truncated.mp4"}, "distorted", "the clip is damaged or truncated"),
    "shorter": Case({"distorted": "short.mp4"}, "distorted", "it has 3 frames, but the reference has 6"),
    "longer": Case({"reference": "short.mp4"}, "distorted", "it has 6 frames, but the reference has 3"),
    "faster": Case({"distorted": "fast.mp4"}, "distorted", "its frame rate is 50 fps, but the reference has 25 fps"),
    "square": Case({"distorted": "square.mp4"}, "distorted", "its aspect ratio (144x144, 1.000:1) differs from"),
    "sound": Case({"distorted": "sound.m4a"}, "distorted", "it has no video stream"),
    "playlist": Case({"distorted": "list.mp4"}, "distorted", "cannot read it"),
    "raw": Case({"distorted": "clip.raw"}, "distorted", "it is not a video, it is truncated, or"),
    "raw-of-another-size": Case(
        {"distorted": "clip.yuv", "distortedFormat": {"width": 256, "height": 145, "pixelFormat": "yuv420p"}},
        "distorted",
        "are not a whole number of 256x145 yuv420p frames",
    ),
    "long-name": Case({"distorted": f"{'x' * 1800}.mp4"}, "distorted", "there is no file file:///"),
    "odd-name": Case({"distorted": "%1B%5B31m%0Ared.mp4"}, "distorted", "there is no file file:///"),
    "scheme": Case({"distorted": "ftp://clips.example.com/a.mp4"}, "distorted", "ftp:// is not supported"),
    "loopback": Case({"distorted": "http://127.0.0.1:1/a.mp4"}, "distorted", "a private, loopback or link-local"),
    "model": Case({"model": "vmaf_v9"}, "model", "there is no model 'vmaf_v9'; use vmaf_v0.6.1"),
    "missing-model": Case({"model": "file:///none/model.json"}, "model", "there is no file file:///none/model.json"),
    "wrong-model": Case({"model": "wrong.json"}, "model", "is not a VMAF model in JSON"),
    "small-for-ms-ssim": Case({"options": {"features": ["ms_ssim"]}}, "options", "ms_ssim needs 176x176"),
    "narrow-for-cambi": Case({"options": {"features": ["psnr", "cambi"]}}, "options", "cambi needs a width of 320"),
    "output": Case({"output": "file:///none/report.json"}, "options", "output file:///none/report.json is a file"),
    "output-scheme": Case({"output": "ftp://reports.example.com/a"}, "options", "ftp:// is not supported"),
}


@pytest.fixture(scope="module")
def bad_clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    reference = lossless(scene(frames=6), folder / "reference.mkv")
    h264 = ("-c:v", "libx264", "-crf", "34", "-movflags", "+faststart")
    ffmpeg("-i", reference, *h264, folder / "distorted.mp4")
    ffmpeg("-i", reference, "-frames:v", "3", *h264, folder / "short.mp4")
    ffmpeg("-i", reference, "-vf", "fps=50", *h264, folder / "fast.mp4")
    ffmpeg("-i", reference, "-vf", "scale=144:144,setsar=1", *h264, folder / "square.mp4")
    ffmpeg("-f", "lavfi", "-i", "sine=d=1", folder / "sound.m4a")
    scene(frames=6).write(folder / "clip.yuv")
    (folder / "clip.raw").write_bytes((folder / "clip.yuv").read_bytes())
    (folder / "truncated.mp4").write_bytes((folder / "distorted.mp4").read_bytes()[:-500])
    (folder / "empty.mp4").touch()
    (folder / "text.mp4").write_text("this is not a video\n" * 100)
    (folder / "list.mp4").write_text(f"ffconcat version 1.0\nfile '{folder / 'distorted.mp4'}'\n")
    (folder / "wrong.json").write_text('{"model_dict": {}}')
    return folder


def spec_of(bad_clips: Path, changes: dict[str, Any]) -> dict[str, Any]:
    """A valid spec with these changes; a bare name is a file in the folder of the clips."""
    spec = {"reference": "reference.mkv", "distorted": "distorted.mp4"} | changes
    for part in ("reference", "distorted", "model"):
        if part in spec and "://" not in spec[part] and (part != "model" or spec[part].endswith(".json")):
            spec[part] = f"{bad_clips.as_uri()}/{spec[part]}"
    return spec


async def submit_spec(client: Client, namespace: str, name: str, spec: dict[str, Any]) -> ObjectKey:
    """Create a job as kubectl would: only the API server validates it."""
    body: UntypedObject = {"apiVersion": "vmafx.dev/v1", "kind": "VmafxJob", "metadata": {"name": name}, "spec": spec}
    await client.create(JOBS.decoded_as(dict), body, namespace)
    return ObjectKey(namespace, name)


@asynccontextmanager
async def fleet(client: Client, namespace: str, folder: Path, *variables: EnvVar) -> AsyncIterator[Kubelet]:
    """A node whose workers have these variables, the operator, and a kubelet."""
    await allow_pods(client, namespace)
    await add_node(client, namespace, "pool", capacity=2, podTemplate=PodOverlay(env=variables))
    async with Kubelet(client, namespace, folder) as kubelet, operating(client, namespace):
        yield kubelet


class Finished(NamedTuple):
    """All jobs of CASES once finished, and the Pods that were started."""

    jobs: dict[str, VmafxJob]
    started: list[str]


@pytest.fixture(scope="module")
async def finished(client: Client, bad_clips: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    namespace = "job-refusals"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    async with fleet(client, namespace, tmp_path_factory.mktemp("answers")) as kubelet:
        keys = {
            name: await submit_spec(client, namespace, name, spec_of(bad_clips, case.spec))
            for name, case in CASES.items()
        }
        fine = await submit_spec(client, namespace, "fine", spec_of(bad_clips, {}))

        async def all_finished() -> bool:
            return all(job.status.phase in FINISHED for job in (await client.list(JOBS, namespace)).items)

        await eventually(all_finished, "all are finished, two at a time", within=280)
        jobs = {name: await reaches(client, key, phase("Failed"), f"{name} fails") for name, key in keys.items()}
        await reaches(client, fine, phase("Succeeded"), "a valid job is scored beside them")
    return Finished(jobs, kubelet.started)


@pytest.mark.parametrize("name", CASES)
def test_bad_input_fails_in_one_attempt_and_says_which_part_and_why(finished: Finished, name: str) -> None:
    job, case = finished.jobs[name], CASES[name]
    (failed,) = (one for one in job.status.conditions if one.type == "Failed")
    assert (failed.status, failed.reason) == ("True", "BadInput")
    assert failed.message == job.status.message
    assert failed.message.startswith(f"{case.part}: ")
    assert case.message in failed.message
    assert failed.message.isprintable()
    assert (job.status.attempts, job.status.failures, job.status.score, job.status.frames) == (1, 0, None, None)
    assert [one for one in finished.started if one.rpartition("-")[0] == name] == [f"{name}-0"]
    assert {one.type for one in job.status.conditions} == {"Scheduled", "Failed"}
    assert job.status.finishedAt is not None


@pytest.mark.parametrize(
    ("status", "reason"),
    [(404, "file not found; check the URL"), (403, "permission denied"), (401, "permission denied")],
)
@pytest.mark.parametrize("part", ["reference", "distorted", "model"])
async def test_a_clip_that_the_web_server_refuses_fails_the_job(
    client: Client, namespace: str, bad_clips: Path, tmp_path: Path, status: int, reason: str, part: str
) -> None:
    async with WebServer() as server, fleet(client, namespace, tmp_path, NEAR) as kubelet:
        url = server.serve("/clip.json", says(status))
        key = await submit_spec(client, namespace, "refused", spec_of(bad_clips, {part: url}))
        job = await reaches(client, key, phase("Failed"), "it fails")
    assert condition(job, "Failed") == ("True", "BadInput")
    assert job.status.message is not None
    assert job.status.message.startswith(f"{part}: cannot fetch {url}: the server answered {status}, {reason}")
    assert (kubelet.started, job.status.score) == (["refused-0"], None)


async def test_a_file_outside_the_allowed_folders_fails_the_job(
    client: Client, namespace: str, bad_clips: Path, tmp_path: Path
) -> None:
    """The message does not reveal whether the file exists."""
    async with fleet(client, namespace, tmp_path, EnvVar("VMAFX_MEDIA_ROOTS", str(bad_clips))) as kubelet:
        messages = []
        for number, uri in enumerate(("file:///etc/passwd", "file:///etc/none", f"{bad_clips.as_uri()}/../none")):
            key = await submit_spec(client, namespace, f"job-{number}", spec_of(bad_clips, {"distorted": uri}))
            job = await reaches(client, key, phase("Failed"), "it fails")
            assert condition(job, "Failed") == ("True", "BadInput")
            messages.append((job.status.message or "").replace(uri, "X"))
        assert set(messages) == {"distorted: X is outside the folders that VMAFX_MEDIA_ROOTS allows"}
    assert kubelet.started == ["job-0-0", "job-1-0", "job-2-0"]


SECRET = "s3cr3t"  # used as a password and as a signature


@pytest.mark.parametrize("part", ["reference", "distorted", "model", "output"])
async def test_the_message_about_a_refused_url_has_no_credentials(
    client: Client, namespace: str, bad_clips: Path, tmp_path: Path, part: str
) -> None:
    async with WebServer() as server, fleet(client, namespace, tmp_path, NEAR):
        target = server.serve("/target", says(404))
        url = server.serve("/clip.json", redirects(f"{target}?sig={SECRET}"), login=f"user:{SECRET}")
        if part == "output":
            url = server.serve("/clip.json", says(403), login=f"user:{SECRET}")
        key = await submit_spec(client, namespace, "secret", spec_of(bad_clips, {part: f"{url}?sig={SECRET}"}))
        job = await reaches(client, key, phase("Failed"), "it fails")
        assert f"http://127.0.0.1:{server.port}/clip.json" in (job.status.message or "")
        assert [one for one in server.requests if SECRET in one.target]  # the server did get it
        await assert_no_secret(client, key)


async def test_the_uri_of_a_report_has_no_credentials(
    client: Client, namespace: str, bad_clips: Path, tmp_path: Path
) -> None:
    async with WebServer() as server, fleet(client, namespace, tmp_path, NEAR):
        content = (bad_clips / "distorted.mp4").read_bytes()
        distorted = server.serve("/clip.mp4", has(content), login=f"user:{SECRET}")
        output = server.serve("/report.json", says(200), login=f"user:{SECRET}")
        changes = {"distorted": f"{distorted}?sig={SECRET}", "output": f"{output}?sig={SECRET}"}
        key = await submit_spec(client, namespace, "secret", spec_of(bad_clips, changes))
        job = await reaches(client, key, phase("Succeeded"), "it is scored")
        assert job.status.reportURI == f"http://127.0.0.1:{server.port}/report.json"
        await assert_no_secret(client, key)


async def assert_no_secret(client: Client, key: ObjectKey) -> None:
    """In the job's status, its events, or the status and metadata of its Pod."""

    async def events() -> list[UntypedObject]:
        return [one for one in (await client.list(EVENTS, key.namespace)).items if one["regarding"]["name"] == key.name]

    await eventually(events, "there is an event")
    job = await client.get(JOBS.decoded_as(dict), key)
    (pod,) = (await client.list(PODS, key.namespace)).items
    assert json.loads(pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"])
    for value in (job["status"], await events(), pod["status"], pod["metadata"]):
        assert SECRET not in json.dumps(value)
