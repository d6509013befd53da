"""Worker Pods push samples if a training selects their node; without one, nothing changes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.support.fleet import add_node, allow_pods, operating, phase, reaches, submit
from tests.support.inprocess_controller import controller_ports
from tests.support.kubelet import Kubelet
from tests.support.proxy import Fault, FaultyProxy, Refuse
from tests.support.trainers import Trainers, add_training
from tests.support.training_samples import teacher_score
from vmafx.jobs.sample_keys import SAMPLES_SECRET
from vmafx.kube import NODES, Client, ObjectKey
from vmafx.kube.core import PODS
from vmafx.training.samples import SampleSource

# Empty, so that the Secret with a job's credentials cannot set them.
NO_SAMPLES = {"VMAFX_SAMPLES_URL": "", "VMAFX_SAMPLES_TOKEN": ""}


@asynccontextmanager
async def pod_fleet(
    client: Client, namespace: str, folder: Path, operator: Client | None = None
) -> AsyncIterator[Trainers]:
    """A node with the label rack=a, the operator, a kubelet with the real worker, a controller, and trainers."""
    await allow_pods(client, namespace)
    await add_node(client, namespace, "pool", capacity=2)
    await client.merge_patch(NODES, ObjectKey(namespace, "pool"), {"metadata": {"labels": {"rack": "a"}}})
    async with (
        Trainers(client) as trainers,
        controller_ports(client, namespace, trainers=trainers.address) as (_, url),
        Kubelet(client, namespace, folder),
        operating(operator or client, namespace, controller_address=f"{url}/"),
    ):
        yield trainers


async def environment(client: Client, namespace: str, pod: str) -> dict[str, Any]:
    (container,) = (await client.get(PODS, ObjectKey(namespace, pod)))["spec"]["containers"]
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


async def test_the_samples_of_a_pod_reach_the_trainings_that_select_its_node(
    client: Client, namespace: str, clips: Path, tmp_path: Path
) -> None:
    await add_training(client, namespace, "mine", rack="a")
    await add_training(client, namespace, "others", rack="b")
    async with pod_fleet(client, namespace, tmp_path) as trainers:
        job = await reaches(
            client, await submit(client, namespace, "one", clips, humanScore=70.5), phase("Succeeded"), "scored"
        )
        variables = await environment(client, namespace, "one-0")
        assert variables["VMAFX_SAMPLES_URL"].endswith("/v1/samples")
        assert "//v1" not in variables["VMAFX_SAMPLES_URL"]
    uid = job.metadata.uid
    source = SampleSource(namespace, "pool", uid, f"{uid}-0", 70.5)
    assert set(trainers.stored) == {("mine", source)}
    batch = trainers.stored["mine", source]
    assert batch.count == 6
    assert teacher_score(batch) == pytest.approx(job.status.score, abs=1e-3)


async def test_without_a_training_for_the_node_a_pod_gets_nothing_and_no_key_is_read(
    client: Client, namespace: str, clips: Path, tmp_path: Path, proxy: FaultyProxy, proxied_client: Client
) -> None:
    await add_training(client, namespace, "others", rack="b")
    paths = list[str]()

    def record(request: web.Request) -> None:
        paths.append(request.path)

    proxy.choose = record
    async with pod_fleet(client, namespace, tmp_path, proxied_client) as trainers:
        await reaches(client, await submit(client, namespace, "one", clips), phase("Succeeded"), "scored")
        assert (await environment(client, namespace, "one-0")).items() >= NO_SAMPLES.items()
        assert trainers.received == 0
    assert any(path.endswith("/pods") for path in paths)
    assert not any(SAMPLES_SECRET in path for path in paths)


async def test_a_job_is_scored_without_samples_if_the_key_cannot_be_read(
    client: Client, namespace: str, clips: Path, tmp_path: Path, proxy: FaultyProxy, proxied_client: Client
) -> None:
    await add_training(client, namespace, "all")

    def forbid(request: web.Request) -> Fault | None:
        return Refuse(403) if SAMPLES_SECRET in request.path else None

    proxy.choose = forbid
    async with pod_fleet(client, namespace, tmp_path, proxied_client) as trainers:
        await reaches(client, await submit(client, namespace, "one", clips), phase("Succeeded"), "scored")
        assert (await environment(client, namespace, "one-0")).items() >= NO_SAMPLES.items()
        assert trainers.received == 0


async def test_a_trainer_that_is_down_does_not_fail_the_job(
    client: Client, namespace: str, clips: Path, tmp_path: Path
) -> None:
    await add_training(client, namespace, "all")
    async with pod_fleet(client, namespace, tmp_path) as trainers:
        trainers.status = lambda _: 503
        await reaches(client, await submit(client, namespace, "one", clips), phase("Succeeded"), "scored")
        assert (trainers.received > 0, trainers.stored) == (True, {})
