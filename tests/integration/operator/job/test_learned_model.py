"""Jobs that name a learned model in an OCI registry."""

import asyncio
from pathlib import Path

import pytest

from tests.support.fleet import add_node, allow_pods, condition, operating, phase, reaches, submit
from tests.support.kubelet import Kubelet
from tests.support.registry import learned_model, make_version, running_registry
from vmafx.api.pod import EnvVar, PodOverlay
from vmafx.kube import Client
from vmafx.scoring.request import Source
from vmafx.scoring.score import Scorer
from vmafx.training.registry import ModelRepository


async def test_a_job_is_scored_with_a_model_in_a_registry(
    client: Client, namespace: str, clips: Path, tmp_path: Path
) -> None:
    version = make_version(tmp_path / "versions", learned_model())
    reference, distorted = (Source(str(clips / name)) for name in ("reference.mkv", "distorted.mp4"))
    base = await Scorer().score(reference, distorted)
    expected = learned_model().predict(base.values)

    await allow_pods(client, namespace)
    allowed = (EnvVar("VMAFX_MEDIA_ALLOW_PRIVATE", "true"),)
    await add_node(client, namespace, "pool", capacity=2, podTemplate=PodOverlay(env=allowed))
    with running_registry(tmp_path / "registry") as registry:
        name = f"{registry.address}/team/vmaf"
        await asyncio.to_thread(ModelRepository(name).push, version, 1)
        async with Kubelet(client, namespace, tmp_path), operating(client, namespace):
            key = await submit(client, namespace, "learned", clips, model=f"oci://{name}@{version.digest}")
            job = await reaches(client, key, phase("Succeeded"), "it is scored")
            assert job.status.score == pytest.approx(sum(expected) / len(expected), abs=0.01)
            assert job.status.score != pytest.approx(base.result.score, abs=0.01)

            tagged = await submit(client, namespace, "tagged", clips, model=f"oci://{name}:latest")
            job = await reaches(client, tagged, phase("Failed"), "it is refused")
            assert condition(job, "Failed") == ("True", "BadInput")
            assert "named by its digest" in (job.status.message or "")
