"""`vmafx train`, `vmafx models` and `vmafx label` on a real API server."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.support.commands import Vmafx, line_with
from tests.support.trainings import training_body
from vmafx.api.job import VmafxJob, VmafxJobSpec
from vmafx.api.meta import ApiModel, MetaView, ObjectMeta
from vmafx.cli import models
from vmafx.clock import utc_now
from vmafx.fleet import reader
from vmafx.fleet.errors import UnreadableTraining
from vmafx.kube import JOBS, TRAININGS, Client, ObjectKey

REGISTRY = "registry.example.com/models/house"
DIGESTS = [f"sha256:{number:064x}" for number in range(3)]


async def create_training(client: Client, namespace: str, name: str = "house", **status: Any) -> ObjectKey:
    """A training with two versions, the second of them pushed, as the operator writes its status."""
    now, key = utc_now(), ObjectKey(namespace, name)
    await client.create(TRAININGS, training_body(name, outputRegistry=REGISTRY), namespace)
    checkpoints = [
        {"number": number, "digest": DIGESTS[number], "time": now - timedelta(minutes=10 * (3 - number)),
         "samples": 1000 * number, "loss": 20.0 / number, "pearson": 0.8, "spearman": 0.7, "pushed": number == 2}
        for number in (1, 2)
    ]  # fmt: skip
    fields = {
        "phase": "Running", "currentSamples": 2500, "loss": 9.5, "pearson": 0.912, "spearman": 0.854,
        "learningRate": 0.001, "modelVersion": DIGESTS[2], "lastSample": now, "checkpoints": checkpoints,
        "lastCheckpoint": checkpoints[-1]["time"], "message": "the trainer learns", "observedGeneration": 1,
    }  # fmt: skip
    await client.patch_status(TRAININGS, key, {**fields, **status})
    return key


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": utc_now()}


async def test_the_status_of_a_training(vmafx: Vmafx, client: Client, namespace: str) -> None:
    await create_training(
        client,
        namespace,
        conditions=[
            condition("Ready", "True", "Training", "trained"),
            condition("Stale", "True", "NoNewSamples", "no new samples"),
            condition("Published", "False", "PushFailed", "refused\x1b[31m"),
        ],
        excludedNodes=[{"name": "n1", "message": "frame numbers do not increase"}],
    )
    done = await vmafx.run("train", "status", "house")
    assert (done.returncode, done.stderr) == (0, "")
    facts = dict(line.strip().split(":", 1) for line in done.stdout.splitlines() if line.startswith("  "))
    assert {name: text.strip() for name, text in facts.items()} == {
        "phase": "Running (the trainer learns)",
        "samples": "2,500, 100/min",
        "last sample": facts["last sample"].strip(),
        "loss": "9.5",
        "Pearson": "0.912",
        "Spearman": "0.854",
        "learning rate": "0.001",
        "checkpoint": "version 2, 10m ago",
        "version": DIGESTS[2],
        "model": f"oci://{REGISTRY}@{DIGESTS[2]}",
    }
    assert done.stdout.splitlines()[-3:] == [
        "warning: Stale, NoNewSamples: no new samples",
        "warning: Published, PushFailed: refused\\x1b[31m",
        "warning: node n1 is excluded: frame numbers do not increase",
    ]
    row = json.loads((await vmafx.run("train", "status", "house", "-o", "json")).stdout)
    assert (row["samples"], row["samplesPerMinute"], row["versions"]) == (2500, 100.0, 2)


async def test_what_needs_attention_is_shown_once(vmafx: Vmafx, client: Client, namespace: str) -> None:
    starting = condition("Ready", "False", "Starting", "the trainer is starting")
    key = await create_training(client, namespace, message="the trainer is starting", conditions=[starting])
    shown = (await vmafx.run("train", "status", "house")).stdout
    assert "Running (the trainer is starting)" in shown
    assert "warning" not in shown
    full = "cannot store samples: No space left on device"
    conditions = [
        condition("Ready", "False", "TrainerFailed", "it diverged"),
        condition("Degraded", "True", "StorageProblem", full),
    ]
    await client.patch_status(TRAININGS, key, {"message": "it diverged", "phase": "Failed", "conditions": conditions})
    shown = (await vmafx.run("train", "status", "house")).stdout
    assert shown.count("it diverged") == 1
    assert shown.splitlines()[-2:] == [
        "warning: TrainerFailed: it diverged",
        f"warning: Degraded, StorageProblem: {full}",
    ]


async def test_a_training_that_cannot_be_decoded_is_not_missing(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stricter(ApiModel):
        metadata: MetaView
        spec: int

    await create_training(client, namespace)
    monkeypatch.setattr(reader, "FLEET_TRAININGS", TRAININGS.decoded_as(Stricter))
    with pytest.raises(UnreadableTraining, match=r"training house .* cannot be read: Expected `int`.*spec"):
        await reader.FleetReader(client, namespace).training("house")


def test_help_shows_the_options_of_the_default_command() -> None:
    shown = CliRunner().invoke(models.app, ["--help"]).stdout
    for text in ("NAME", "--output", "--all-namespaces", "diff"):
        assert text in shown


async def test_a_training_is_watched(vmafx: Vmafx, client: Client, namespace: str) -> None:
    key = await create_training(client, namespace)
    await create_training(client, namespace, "other")
    async with vmafx.running("train", "status", "house", "--watch") as process:
        assert (await line_with(process.stdout, "house")).split()[:4] == ["house", "Running", "2,500", "100/min"]
        await client.patch_status(TRAININGS, ObjectKey(namespace, "other"), {"phase": "Failed"})
        await client.patch_status(TRAININGS, key, {"currentSamples": 3000, "phase": "Paused"})
        assert (await line_with(process.stdout, "")).split()[:3] == ["house", "Paused", "3,000"]
        await client.delete(TRAININGS, key)
        assert (await line_with(process.stdout, "Deleted")).split()[:2] == ["house", "Deleted"]


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.html", b"<!DOCTYPE html>")]
)
async def test_a_plot_is_written(
    vmafx: Vmafx, client: Client, namespace: str, tmp_path: Path, name: str, start: bytes
) -> None:
    await create_training(client, namespace)
    done = await vmafx.run("train", "status", "house", "--plot", str(tmp_path / name))
    assert (done.returncode, done.stderr) == (0, f"wrote {tmp_path / name}\n")
    content = (tmp_path / name).read_bytes()
    assert content.startswith(start)
    if name != "a.png":
        assert b"Pearson" in content


async def test_errors_of_train_status(vmafx: Vmafx, client: Client, namespace: str, tmp_path: Path) -> None:
    await client.create(TRAININGS, training_body("new"), namespace)
    for arguments, message in {
        ("none",): f"training none not found in namespace {namespace}",
        ("new", "--plot", "a.pdf"): "--plot: a.pdf must end in .png, .svg or .html",
        ("new", "--plot", str(tmp_path / "a.png")): "training new has no version of its model yet",
        ("new", "--plot", "a.png", "--watch"): "cannot be combined",
    }.items():
        done = await vmafx.run("train", "status", *arguments)
        assert done.returncode != 0
        assert message in done.stderr
    done = await vmafx.run("train", "status", "new")
    assert (done.returncode, "none yet" in done.stdout) == (0, True)


async def test_the_versions_of_models(vmafx: Vmafx, client: Client, namespace: str) -> None:
    assert (await vmafx.run("models")).stdout == f"no versions of models found in namespace {namespace}\n"
    await create_training(client, namespace)
    await create_training(client, namespace, "other")
    rows = json.loads((await vmafx.run("models", "-o", "json")).stdout)
    assert [(row["name"], row["version"]) for row in rows] == [("house", 2), ("house", 1), ("other", 2), ("other", 1)]
    assert [row["model"] for row in rows[:2]] == [f"oci://{REGISTRY}@{DIGESTS[2]}", None]
    done = await vmafx.run("models", "house")
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["NAME", "VERSION", "SAMPLES", "LOSS", "PEARSON", "SPEARMAN", "AGE", "MODEL"]
    assert [line.split()[:6] for line in lines] == [
        ["house", "2", "2,000", "10", "0.8", "0.7"],
        ["house", "1", "1,000", "20", "0.8", "0.7"],
    ]
    assert "training none not found" in (await vmafx.run("models", "none")).stderr


async def test_two_models_score_the_same_clips(vmafx: Vmafx, clips: Path) -> None:
    reference, distorted = str(clips / "reference.mkv"), str(clips / "distorted.mp4")
    arguments = ("diff", "vmaf_v0.6.1", "vmaf_v0.6.1neg", reference, distorted, reference)
    done = await vmafx.run("models", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    first, same = result["clips"]
    assert first["difference"] == pytest.approx(first["b"] - first["a"])
    assert result["meanDifference"] == pytest.approx((first["difference"] + same["difference"]) / 2)
    done = await vmafx.run("models", *arguments, "--quiet")
    assert f"{first['a']:.3f}" in done.stdout
    assert f"{result['meanDifference']:+.3f}" in done.stdout
    done = await vmafx.run("models", "diff", "vmaf_v0.6.1", "none", reference, distorted)
    assert (done.returncode, "none" in done.stderr) == (2, True)


async def create_job(client: Client, namespace: str, name: str) -> None:
    spec = VmafxJobSpec("file:///r.mp4", "file:///d.mp4")
    await client.create(JOBS, VmafxJob(metadata=ObjectMeta(name=name), spec=spec), namespace)


async def scores(client: Client, namespace: str) -> dict[str, float | None]:
    """The human scores of the jobs that have the label."""
    jobs = (await client.list(JOBS, namespace, labels="vmafx.dev/labelled=true")).items
    return {job.metadata.name: job.spec.humanScore for job in jobs}


async def test_a_job_is_labelled(vmafx: Vmafx, client: Client, namespace: str) -> None:
    await create_job(client, namespace, "a")
    done = await vmafx.run("label", "a", "72.5")
    assert done.stdout == "set the human score of job a to 72.5\n"
    assert "has no training that could learn from it yet" in done.stderr
    assert await scores(client, namespace) == {"a": 72.5}
    await create_training(client, namespace)
    done = await vmafx.run("label", "a", "0")
    assert f"the operator will send it to 1 training in namespace {namespace}; follow it with: vmafx" in done.stderr
    assert await scores(client, namespace) == {"a": 0.0}
    submitted = await vmafx.run("submit", "s3://b/r.mp4", "s3://b/d.mp4", "--name", "c", "--human-score", "0")
    assert submitted.returncode == 0, submitted.stderr
    assert await scores(client, namespace) == {"a": 0.0, "c": 0.0}


async def test_a_file_is_checked_before_the_first_job_is_changed(
    vmafx: Vmafx, client: Client, namespace: str, tmp_path: Path
) -> None:
    file = tmp_path / "scores.csv"
    for name in ("a", "b"):
        await create_job(client, namespace, name)
    for text, message in {
        "job,score\na,50\nb,101\n": "scores.csv, line 3: '101' is not a score from 0 to 100",
        "job,score\na,50\nnone,1\n": "scores.csv, line 3: job none not found",
        "job,score\na,1\na,2\n": "scores.csv, line 3: job a has a score already, in line 2",
        "name,score\na,50\n": "scores.csv, line 1: there is no column 'job'",
        "job,score\n": "scores.csv has no scores",
    }.items():
        file.write_text(text)
        done = await vmafx.run("label", "--file", str(file))
        assert (done.returncode, message in done.stderr) == (2, True), done.stderr
        assert await scores(client, namespace) == {}
    file.write_bytes(b"\xef\xbb\xbfscore, job, comment\r\n50.5, a, good\r\n0, b,\r\n")
    done = await vmafx.run("label", "--file", str(file))
    assert done.stdout == f"set the human scores of 2 jobs in namespace {namespace}\n"
    assert await scores(client, namespace) == {"a": 50.5, "b": 0.0}
    assert "give either JOB and SCORE, or --file" in (await vmafx.run("label", "a")).stderr
    assert "cannot be read" in (await vmafx.run("label", "--file", "/none.csv")).stderr
