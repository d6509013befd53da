"""Events, as a person finds them."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from tests.conftest import Kubectl
from tests.integration.kube.test_client import make
from tests.support.waiting import eventually
from vmafx.kube import Client
from vmafx.kube.core import EVENTS
from vmafx.runtime.events import BURST, NORMAL_BURST, EventRecorder, EventSubject


@pytest.fixture
async def recorder(client: Client) -> AsyncIterator[EventRecorder]:
    recorder = EventRecorder(client, "vmafx-operator", "test-instance")
    task = asyncio.create_task(recorder.run())
    yield recorder
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def about_a_job(client: Client, namespace: str) -> EventSubject:
    key, job = await make(client, namespace)
    return EventSubject("vmafx.dev/v1", "VmafxJob", key.namespace, key.name, job.metadata.uid)


async def counts(client: Client, namespace: str) -> list[int]:
    events = (await client.list(EVENTS, namespace)).items
    return sorted((event.get("series") or {}).get("count", 1) for event in events)


async def test_describe_shows_them(client: Client, namespace: str, recorder: EventRecorder, kubectl: Kubectl) -> None:
    job = await about_a_job(client, namespace)
    recorder.emit(job, "Warning", "NoNodes", "Place", "no node fits; add one, or change nodeSelector")

    async def there() -> bool:
        return await counts(client, namespace) == [1]

    await eventually(there, "the event is there")
    shown = kubectl("describe", "vmjob", job.name).stdout
    assert "Warning  NoNodes" in shown
    assert "no node fits; add one, or change nodeSelector" in shown


async def test_the_same_again_is_counted(client: Client, namespace: str, recorder: EventRecorder) -> None:
    job = await about_a_job(client, namespace)
    for number in range(5):
        recorder.emit(job, "Normal", "Retried", "Place", f"attempt {number}")
    recorder.emit(job, "Normal", "Suspended", "Suspend", "")

    async def counted() -> bool:
        return await counts(client, namespace) == [1, 5]

    await eventually(counted, "five of one, one of the other")


async def test_one_object_cannot_flood_the_cluster(client: Client, namespace: str, recorder: EventRecorder) -> None:
    noisy, quiet = await about_a_job(client, namespace), await about_a_job(client, namespace)
    for number in range(100):
        recorder.emit(noisy, "Normal", f"Reason{number}", "Place", "")
    recorder.emit(quiet, "Normal", "Quiet", "Place", "")

    async def heard() -> bool:
        events = (await client.list(EVENTS, namespace)).items
        return any(event["reason"] == "Quiet" for event in events)

    await eventually(heard, "the quiet one is heard")
    assert len(await counts(client, namespace)) == BURST + 1


async def test_good_news_of_many_is_limited_and_keeps_no_warning_out(client: Client, namespace: str) -> None:
    """As when thousands of jobs end: all are told of before anything is written."""
    recorder = EventRecorder(client, "vmafx-operator", "test-instance")
    job = await about_a_job(client, namespace)
    for number in range(5000):
        recorder.emit(msgspec.structs.replace(job, uid=f"uid-{number}"), "Normal", "Scored", "Run", "VMAF 93.210")
    recorder.emit(job, "Warning", "BadInput", "Run", "there is no such clip")
    task = asyncio.create_task(recorder.run())

    async def warned() -> bool:
        events = (await client.list(EVENTS, namespace)).items
        return any(event["type"] == "Warning" for event in events)

    try:
        await eventually(warned, "the warning is there")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    reasons = [event["reason"] for event in (await client.list(EVENTS, namespace)).items]
    assert NORMAL_BURST <= reasons.count("Scored") < 5 * NORMAL_BURST  # on a slow machine it may be some more
