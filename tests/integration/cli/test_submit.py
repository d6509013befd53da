"""`vmafx submit` on a real API server: jobs, --wait, exit codes, notes and errors."""

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Kubectl
from tests.support.commands import Terminal, Vmafx, line_with
from tests.support.fleet import ScoringFleet, has_seen, known_to_take, phase, reaches, submit
from tests.support.proxy import FaultyProxy, LoseAnswer
from tests.support.waiting import eventually
from vmafx.api.job import VmafxJobSpec
from vmafx.fleet.errors import NoSuchJob
from vmafx.fleet.submit import create_job, manifest
from vmafx.fleet.watch import follow_job
from vmafx.kube import JOBS, NODES, Client, ObjectKey
from vmafx.kube.errors import Unreachable


async def job_names(client: Client, namespace: str) -> list[str]:
    return [job.metadata.name for job in (await client.list(JOBS, namespace)).items]


async def test_wait_prints_the_same_score_as_vmafx_score(
    fleet: ScoringFleet, vmafx: Vmafx, client: Client, namespace: str, clips: Path
) -> None:
    pair = (str(clips / "reference.mkv"), (clips / "distorted.mp4").as_uri())
    done = await vmafx.run("submit", *pair, "--wait", "--timeout", "100s")
    assert done.returncode == 0, done.stderr
    (name,) = await job_names(client, namespace)
    assert name.startswith("distorted-")
    local_score = json.loads((await vmafx.run("score", *pair, "--json")).stdout)["score"]
    assert (await client.get(JOBS, ObjectKey(namespace, name))).status.score == local_score
    assert done.stdout.startswith(f"VMAF {local_score:.3f}  (6 frames, ")
    assert done.stdout.endswith(f" on pool; job {name})\n")
    assert done.stderr.splitlines()[0] == f"note: {pair[0]} must exist at this path on every node that may run the job"
    assert f"{name} is running on pool\n" in done.stderr


async def test_json_and_yaml_output_is_the_job(fleet: ScoringFleet, vmafx: Vmafx, clips: Path, namespace: str) -> None:
    pair = ((clips / "reference.mkv").as_uri(), (clips / "distorted.mp4").as_uri())
    made = json.loads((await vmafx.run("submit", *pair, "-o", "json", "--name", "mine")).stdout)
    assert (made["kind"], made["metadata"]["name"], made["status"]) == ("VmafxJob", "mine", {"phase": "Pending"})
    assert "managedFields" not in made["metadata"]
    done = await vmafx.run("submit", *pair, "-o", "yaml", "--wait")
    job = yaml.safe_load(done.stdout)
    assert (job["metadata"]["namespace"], job["status"]["phase"]) == (namespace, "Succeeded")
    assert 0 < job["status"]["score"] < 100


async def test_wait_has_an_exit_code_for_each_outcome(
    fleet: ScoringFleet, vmafx: Vmafx, client: Client, namespace: str, clips: Path
) -> None:
    reference = (clips / "reference.mkv").as_uri()
    bad = await vmafx.run("submit", reference, "file:///none.mp4", "--name", "bad", "--wait")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "error: job bad failed: BadInput: distorted: there is no file file:///none.mp4" in bad.stderr
    fleet.kubelet.answers["broken-0"] = (3, "")
    pair = (reference, (clips / "distorted.mp4").as_uri())
    broken = await vmafx.run("submit", *pair, "--name", "broken", "--retry-limit", "0", "--wait", "-o", "json")
    assert broken.returncode == 1
    assert "error: job broken failed: RetriesExhausted: the worker exited with code 3" in broken.stderr
    assert json.loads(broken.stdout)["status"]["phase"] == "Failed"
    late = await vmafx.run("submit", *pair, "--name", "late", "--suspend", "--wait", "--timeout", "1")
    assert (late.returncode, late.stdout) == (1, "")
    assert (
        "error: timed out after 1 s; job late continues in the background; to show it: vmafx jobs late" in late.stderr
    )
    assert (await client.get(JOBS, ObjectKey(namespace, "late"))).spec.suspend


async def test_an_interrupted_wait_leaves_the_job_running_and_says_how_to_cancel_it(
    fleet: ScoringFleet, vmafx: Vmafx, client: Client, namespace: str, clips: Path, kubectl: Kubectl
) -> None:
    pair = ((clips / "long.mkv").as_uri(),) * 2
    fleet.kubelet.hold.clear()  # the job must not end before it is cancelled
    for number in (signal.SIGINT, signal.SIGTERM):
        name = number.name.lower()
        async with vmafx.running("submit", *pair, "--name", name, "--wait") as process:
            await line_with(process.stderr, f"{name} is running on pool")
            process.send_signal(number)
            message = await line_with(process.stderr, "continues in the background")
            assert await process.wait() == 130
        command = message.partition("to cancel it: kubectl ")[2].replace("'", "").split()
        ended = await asyncio.to_thread(kubectl, *command)
        assert ended.returncode == 0, ended.stderr
        await reaches(client, ObjectKey(namespace, name), phase("Failed"), "the job is cancelled")


async def test_wait_fails_if_the_job_is_deleted(vmafx: Vmafx, client: Client, namespace: str) -> None:
    async with vmafx.running("submit", "s3://b/a.mp4", "s3://b/b.mp4", "--name", "gone", "--wait") as process:
        await line_with(process.stderr, "gone is waiting (NoNodes: there is no VmafxNode")
        await client.delete(JOBS, ObjectKey(namespace, "gone"))
        assert "error: job gone was deleted before it ended" in await line_with(process.stderr, "error")
        assert await process.wait() == 1


async def test_wait_shows_the_state_on_a_terminal(vmafx: Vmafx, client: Client, namespace: str) -> None:
    waiting = ("submit", "s3://b/a.mp4", "s3://b/b.mp4", "--name", "shown", "--wait")
    async with Terminal() as terminal, vmafx.running(*waiting, terminal=terminal.theirs) as process:
        await terminal.shows("shown is waiting (NoNodes")
        await client.delete(JOBS, ObjectKey(namespace, "shown"))
        await terminal.shows("error: job shown was deleted before it ended")
        assert await process.wait() == 1


async def test_a_job_is_followed_from_an_expired_resource_version(client: Client, namespace: str, clips: Path) -> None:
    key = await submit(client, namespace, "over", clips)
    await client.patch_status(JOBS, key, {"phase": "Failed"})
    assert [job.status.phase async for job in follow_job(client, key, "1")] == ["Failed"]
    await client.delete(JOBS, key)
    with pytest.raises(NoSuchJob, match="job over was deleted before it ended"):
        await anext(follow_job(client, key, "1"))


async def test_a_lost_reply_says_how_to_check_whether_the_job_exists(client: Client, namespace: str) -> None:
    job = manifest(namespace, "mine", {}, VmafxJobSpec("s3://b/a", "s3://b/clip.mp4"))
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        proxy.faults.append(LoseAnswer())
        with pytest.raises(Unreachable, match=f"may have been created anyway; check: vmafx jobs mine -n {namespace}"):
            await create_job(through, job, rename=True)
        proxy.faults.append(LoseAnswer())
        with pytest.raises(Unreachable) as caught:
            await create_job(through, job, rename=True, dry_run=True)
        assert "may have been created" not in str(caught.value)
    assert await job_names(client, namespace) == ["mine"]


async def test_wait_shows_the_position_and_the_estimated_start(
    fleet: ScoringFleet, vmafx: Vmafx, client: Client, namespace: str, clips: Path
) -> None:
    await known_to_take(client, namespace, "pool", 3600, clips)
    fleet.kubelet.hold.clear()
    for number in range(4):
        await submit(client, namespace, f"job-{number}", clips)
    pair = ((clips / "reference.mkv").as_uri(), (clips / "distorted.mp4").as_uri())
    async with vmafx.running("submit", *pair, "--name", "last", "--wait") as process:
        line = await line_with(process.stderr, "last is waiting at position 3")
        assert "(InsufficientCapacity: all 2 slots of the one node that fits are taken); starts in about 1h" in line
        assert "done in about 2h" in line
        fleet.kubelet.hold.set()
        await line_with(process.stderr, "last is running on pool")
        await line_with(process.stdout, "VMAF")
        assert await process.wait() == 0


EVERY_OPTION = (
    "--model vmaf_4k_v0.6.1 --feature psnr,ssim --feature cambi --pool p5 --subsample 2 --threads 3 "
    "--report s3://b/r.json "
    "--size 64x48 --pix-fmt yuv420p10le --fps 23.976 --distorted-size 32x24 --distorted-pix-fmt gray "
    "--name every --label a=b,c=d --label e=f --priority 7 --backend cuda --node-selector rack=a --retry-limit 0 "
    "--deadline 1h30m --ttl 0 --suspend --credentials-secret clip-store --scheduler other"
)  # fmt: skip


async def test_every_option_sets_its_field(vmafx: Vmafx, client: Client, namespace: str, kubectl: Kubectl) -> None:
    clips = ("s3://b/a.yuv?version=3", "s3://b/b.yuv")
    dry_run = await vmafx.run("submit", *clips, *EVERY_OPTION.split(), "--dry-run")
    assert dry_run.returncode == 0, dry_run.stderr
    assert await job_names(client, namespace) == []
    spec: dict[str, Any] = {
        "reference": clips[0],
        "distorted": clips[1],
        "referenceFormat": {"width": 64, "height": 48, "pixelFormat": "yuv420p10le", "frameRate": 23.976},
        "distortedFormat": {"width": 32, "height": 24, "pixelFormat": "gray", "frameRate": 23.976},
        "model": "vmaf_4k_v0.6.1",
        "backend": "cuda",
        "priority": 7,
        "nodeSelector": {"rack": "a"},
        "suspend": True,
        "retryLimit": 0,
        "activeDeadlineSeconds": 5400,
        "ttlSecondsAfterFinished": 0,
        "options": {"subsample": 2, "pooling": "p5", "features": ["psnr", "ssim", "cambi"], "threads": 3},
        "output": "s3://b/r.json",
        "credentialsSecretRef": {"name": "clip-store"},
        "schedulerName": "other",
    }
    assert yaml.safe_load(dry_run.stdout) == {
        "apiVersion": "vmafx.dev/v1",
        "kind": "VmafxJob",
        "metadata": {"name": "every", "namespace": namespace, "labels": {"a": "b", "c": "d", "e": "f"}},
        "spec": spec,
    }
    applied = await asyncio.to_thread(kubectl, "apply", "-f", "-", stdin=dry_run.stdout)
    assert applied.returncode == 0, applied.stderr
    created = await vmafx.run("submit", *clips, *EVERY_OPTION.replace("every", "again").split(), "-o", "json")
    assert json.loads(created.stdout)["spec"] == spec | {"cancel": False}
    as_json = await vmafx.run("submit", *clips, *EVERY_OPTION.replace("every", "b").split(), "--dry-run", "-o", "json")
    assert json.loads(as_json.stdout)["spec"] == spec


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a.mp4", "s3://b/c"), "error: 'a.mp4' is a relative path, but jobs run on other machines; use a URI"),
        (
            ("s3://b/a.MKV?v=1", "s3://b/c.webm", "--size", "64x48"),
            "error: options: --size is for raw video, but s3://b/a.MKV is a container file; omit it",
        ),
        (("s3://b/a", "s3://b/c", "--report", "r.json"), "error: 'r.json' is a relative path"),
        (("s3://b/a", "s3://b/c.yuv"), "error: options: a .yuv clip has no header; specify its --size"),
        (("s3://b/a", "s3://b/c", "--size", "big"), "error: options: --size 'big' is not a size; use e.g. 1920x1080"),
        (("s3://b/a", "s3://b/c", "--feature", "x"), "error: options: unknown feature x; choose from psnr"),
        (("s3://b/a", "s3://b/c", "--ttl", "5x"), "error: options: --ttl '5x' is not a duration; use e.g. 90s"),
        (("s3://b/a", "s3://b/c", "--timeout", "5"), "error: options: --timeout requires --wait"),
        (("s3://b/a", "s3://b/c", "--label", "x"), "error: options: --label 'x' is not KEY=VALUE; use e.g. rack=a"),
        (("s3://b/a", "s3://b/c", "--pool", "most"), "must be mean, harmonic_mean, min, max, median or a percentile"),
        (("s3://b/a", "s3://b/c", "--threads", "129"), "error: options: --threads must be 0 to 128, not 129"),
        (("s3://b/a", "s3://b/ c"), "must be a URI with a scheme and no spaces"),
        (("s3://b/a", "s3://b/c", "--name", "A_B"), "a lowercase RFC 1123 subdomain must consist of"),
        (("s3://b/a", "s3://b/c", "--name", "x" * 53), "metadata.name must have at most 52 characters"),
        (("s3://b/a", "s3://b/c", "--deadline", "0"), "spec.activeDeadlineSeconds"),
        (("s3://b/a", "s3://b/c", "--name", "a\x1b[31m"), 'is invalid: metadata.name'),
    ],
)  # fmt: skip
async def test_invalid_arguments_are_rejected(
    vmafx: Vmafx, client: Client, namespace: str, arguments: tuple[str, ...], message: str
) -> None:
    done = await vmafx.run("submit", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr
    assert await job_names(client, namespace) == []


@pytest.mark.parametrize(
    ("arguments", "notes"),
    [
        (("s3://b/a.mp4", "s3://b/c.mp4", "--model", "vmaf_v0.6.1neg"), []),
        (("s3://b/a.yuv", "s3://b/c.mp4", "--size", "64x48"), []),
        (
            ("s3://b/a.mp4", "s3://b/c.mp4", "--model", "nope"),
            ["model nope is not built in (vmaf_v0.6.1, vmaf_v0.6.1neg, vmaf_4k_v0.6.1); the workers need nope.json in"],
        ),
        (("s3://b/a.mp4", "s3://b/c.mp4", "--backend", "cuda"), []),
        (
            ("FTP://h/a", "ftp://h/c", "--report", "sftp://h/r.json"),
            [
                "workers do not support ftp:// URIs, only file://, http",
                "workers do not support sftp:// URIs, only file://",
            ],
        ),
    ],
)
async def test_a_job_that_may_not_run_is_created_with_a_note(
    vmafx: Vmafx, client: Client, namespace: str, arguments: tuple[str, ...], notes: list[str]
) -> None:
    done = await vmafx.run("submit", *arguments)
    assert (done.returncode, len(await job_names(client, namespace))) == (0, 1)
    *lines, _ = done.stderr.splitlines()  # the last says how to follow the job
    assert len(lines) == len(notes), done.stderr
    assert all(line.startswith(f"note: {note}") for line, note in zip(lines, notes, strict=True)), lines


async def test_a_taken_name_is_an_error_only_if_it_was_given(vmafx: Vmafx, client: Client, namespace: str) -> None:
    assert (await vmafx.run("submit", "s3://b/a", "s3://b/c", "--name", "mine")).returncode == 0
    again = await vmafx.run("submit", "s3://b/a", "s3://b/c", "--name", "mine")
    assert again.returncode == 2
    assert again.stderr == ('error: vmafxjobs.vmafx.dev "mine" already exists; choose another --name, or omit it\n')
    for _ in range(2):
        assert (await vmafx.run("submit", "s3://b/a", "s3://user:pw@b/c")).stderr.startswith(
            "note: everyone who may read jobs can read the password in the URI\n"
        )
    assert len(await job_names(client, namespace)) == 3
    job = manifest(namespace, "mine", {}, VmafxJobSpec("s3://b/a", "s3://b/clip.mp4"))
    created = await create_job(client, job, rename=True)
    assert created["metadata"]["name"].startswith("clip-")


async def test_a_waiting_job_runs_once_a_node_is_available(
    fleet: ScoringFleet, vmafx: Vmafx, client: Client, namespace: str, clips: Path
) -> None:
    pool = ObjectKey(namespace, "pool")
    await client.merge_patch(NODES, pool, {"spec": {"unschedulable": True}})
    await has_seen(fleet.operator, client, pool)
    pair = ((clips / "reference.mkv").as_uri(), (clips / "distorted.mp4").as_uri())
    async with vmafx.running("submit", *pair, "--name", "patient", "-w") as process:
        await line_with(process.stderr, "patient is waiting (NoHealthyNode: ")
        await client.merge_patch(NODES, pool, {"spec": {"unschedulable": False}})
        await line_with(process.stdout, "VMAF")
        assert await process.wait() == 0
    await eventually(lambda: fleet.kubelet.started == ["patient-0"], "the job ran once")
