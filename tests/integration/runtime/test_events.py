"""The event recorder: what a user sees with kubectl."""

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


async def job_subject(client: Client, namespace: str) -> EventSubject:
    key, job = await make(client, namespace)
    return EventSubject("vmafx.dev/v1", "VmafxJob", key.namespace, key.name, job.metadata.uid)


async def series_counts(client: Client, namespace: str) -> list[int]:
    events = (await client.list(EVENTS, namespace)).items
    return sorted((event.get("series") or {}).get("count", 1) for event in events)


async def test_kubectl_describe_shows_an_event(
    client: Client, namespace: str, recorder: EventRecorder, kubectl: Kubectl
) -> None:
    job = await job_subject(client, namespace)
    recorder.emit(job, "Warning", "NoNodes", "Place", "no node fits; add one, or change nodeSelector")

    async def written() -> bool:
        return await series_counts(client, namespace) == [1]

    await eventually(written, "the event exists")
    shown = kubectl("describe", "vmjob", job.name).stdout
    assert "Warning  NoNodes" in shown
    assert "no node fits; add one, or change nodeSelector" in shown


async def test_events_by_note_are_separate_unless_the_note_is_the_same(
    client: Client, namespace: str, recorder: EventRecorder
) -> None:
    job = await job_subject(client, namespace)
    for number in (1, 2, 2, 2):
        recorder.emit(job, "Normal", "Checkpoint", "Reconcile", f"version {number}", by_note=True)

    async def counted() -> bool:
        return await series_counts(client, namespace) == [1, 3]

    await eventually(counted, "one event for each version")


async def test_a_repeated_event_is_counted_in_its_series(
    client: Client, namespace: str, recorder: EventRecorder
) -> None:
    job = await job_subject(client, namespace)
    for number in range(5):
        recorder.emit(job, "Normal", "Retried", "Place", f"attempt {number}")
    recorder.emit(job, "Normal", "Suspended", "Suspend", "")

    async def counted() -> bool:
        return await series_counts(client, namespace) == [1, 5]

    await eventually(counted, "one event has a count of five, the other of one")


async def test_the_events_of_one_object_are_rate_limited(
    client: Client, namespace: str, recorder: EventRecorder
) -> None:
    noisy, quiet = await job_subject(client, namespace), await job_subject(client, namespace)
    for number in range(100):
        recorder.emit(noisy, "Normal", f"Reason{number}", "Place", "")
    recorder.emit(quiet, "Normal", "Quiet", "Place", "")

    async def written() -> bool:
        events = (await client.list(EVENTS, namespace)).items
        return any(event["reason"] == "Quiet" for event in events)

    await eventually(written, "the event of the quiet job exists")
    assert len(await series_counts(client, namespace)) == BURST + 1


async def test_normal_events_of_many_objects_are_rate_limited_and_do_not_delay_a_warning(
    client: Client, namespace: str
) -> None:
    """As when thousands of jobs finish: all events are emitted before the first is written."""
    recorder = EventRecorder(client, "vmafx-operator", "test-instance")
    job = await job_subject(client, namespace)
    for number in range(5000):
        recorder.emit(msgspec.structs.replace(job, uid=f"uid-{number}"), "Normal", "Scored", "Run", "VMAF 93.210")
    recorder.emit(job, "Warning", "BadInput", "Run", "there is no such clip")
    task = asyncio.create_task(recorder.run())

    async def written() -> bool:
        events = (await client.list(EVENTS, namespace)).items
        return any(event["type"] == "Warning" for event in events)

    try:
        await eventually(written, "the warning exists")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    reasons = [event["reason"] for event in (await client.list(EVENTS, namespace)).items]
    assert NORMAL_BURST <= reasons.count("Scored") < 5 * NORMAL_BURST  # tokens are refilled while a slow machine writes
