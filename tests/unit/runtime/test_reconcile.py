"""Outcomes of a reconciliation: what happens to the key, and what is counted."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.virtual import run
from vmafx.clock import loop_time
from vmafx.kube import ObjectKey, Resource
from vmafx.kube.errors import Unreachable
from vmafx.runtime.informer import Informer
from vmafx.runtime.metrics import Metrics
from vmafx.runtime.reconcile import ReconcileLoop, ReconcileResult, TerminalError

KEY = ObjectKey("n", "a")


def outcome_of(
    reconcile: Callable[[ObjectKey], Awaitable[ReconcileResult]], seconds: float = 50.0
) -> tuple[list[float], Metrics]:
    """Reconcile one key for some virtual seconds; tells when it was reconciled, from the start on."""
    times: list[float] = []
    metrics = Metrics()

    async def scenario() -> None:
        start = loop_time()

        async def timed(key: ObjectKey) -> ReconcileResult:
            times.append(round(loop_time() - start, 3))
            return await reconcile(key)

        loop = ReconcileLoop("c", timed, metrics, workers=2, timeout=5.0)
        working = asyncio.create_task(loop.run())
        loop.queue.add(KEY)
        await asyncio.sleep(seconds)
        loop.queue.close()
        await working

    run(scenario())
    return times, metrics


def count(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"controller_runtime_{name}", {"controller": "c", **labels})


def test_every_counter_is_there_from_the_start() -> None:
    metrics = Metrics()

    async def nothing(_: ObjectKey) -> ReconcileResult:
        return ReconcileResult.done()

    async def scenario() -> None:
        ReconcileLoop("c", nothing, metrics, workers=3)

    run(scenario())
    for outcome in ("success", "requeue", "requeue_after", "error"):
        assert count(metrics, "reconcile_total", result=outcome) == 0
    for name in (
        "reconcile_errors_total",
        "terminal_reconcile_errors_total",
        "reconcile_panics_total",
        "active_workers",
    ):
        assert count(metrics, name) == 0
    assert count(metrics, "max_concurrent_reconciles") == 3
    for name in (
        "depth",
        "adds_total",
        "retries_total",
        "unfinished_work_seconds",
        "longest_running_processor_seconds",
    ):
        assert metrics.registry.get_sample_value(f"workqueue_{name}", {"name": "c", "controller": "c"}) == 0


def test_who_does_not_run_yet_piles_nothing_up_and_misses_nothing() -> None:
    done: list[str] = []

    async def reconcile(key: ObjectKey) -> ReconcileResult:
        done.append(key.name)
        return ReconcileResult.done()

    async def scenario() -> None:
        informer: Informer[Any] = Informer(None, Resource("", "v1", "things", "Thing", dict))  # type: ignore[arg-type]
        loop = ReconcileLoop("c", reconcile, Metrics())
        loop.watches(informer)
        for name in ("gone", "there"):
            informer._notify(informer.store.put(ObjectKey("n", name), object()))
        informer.store.remove(ObjectKey("n", "gone"))
        assert len(loop.queue) == 0
        working = asyncio.create_task(loop.run())
        await asyncio.sleep(1)
        informer._notify(informer.store.put(ObjectKey("n", "new"), object()))
        await asyncio.sleep(1)
        loop.queue.close()
        await working

    run(scenario())
    assert done == ["there", "new"]


def test_done_is_done() -> None:
    async def reconcile(_: ObjectKey) -> ReconcileResult:
        return ReconcileResult.done()

    times, metrics = outcome_of(reconcile)
    assert times == [0]
    assert count(metrics, "reconcile_total", result="success") == 1
    assert count(metrics, "reconcile_time_seconds_count") == 1


def test_after_is_after() -> None:
    async def reconcile(_: ObjectKey) -> ReconcileResult:
        return ReconcileResult.after(20)

    times, metrics = outcome_of(reconcile)
    assert times == [0, 20, 40]
    assert count(metrics, "reconcile_total", result="requeue_after") == 3


def test_retry_is_with_growing_patience() -> None:
    async def reconcile(_: ObjectKey) -> ReconcileResult:
        return ReconcileResult.retry()

    times, metrics = outcome_of(reconcile)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert len(times) > 8
    assert gaps[-1] > 20 * gaps[0]
    assert count(metrics, "reconcile_total", result="requeue") == len(times)
    assert count(metrics, "reconcile_errors_total") == 0


@pytest.mark.parametrize(
    ("error", "again", "counter"),
    [
        (Unreachable("no answer", sent=False), True, "reconcile_errors_total"),
        (TerminalError("this will never work"), False, "terminal_reconcile_errors_total"),
        (ZeroDivisionError("nobody thought of this"), True, "reconcile_panics_total"),
    ],
)
def test_failures(error: Exception, again: bool, counter: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def reconcile(_: ObjectKey) -> ReconcileResult:
        raise error

    times, metrics = outcome_of(reconcile, 1.0)
    assert (len(times) > 1) == again
    assert count(metrics, counter) == len(times)
    assert count(metrics, "reconcile_errors_total") == len(times)
    assert count(metrics, "reconcile_total", result="error") == len(times)
    said = capsys.readouterr().err
    assert str(error) in said
    assert ("Traceback" in said) == isinstance(error, ZeroDivisionError)


def test_one_that_takes_too_long_is_stopped_and_tried_again() -> None:
    async def reconcile(_: ObjectKey) -> ReconcileResult:
        await asyncio.sleep(1000)
        return ReconcileResult.done()

    times, metrics = outcome_of(reconcile, 11.0)
    assert [round(time) for time in times] == [0, 5, 10]
    assert count(metrics, "reconcile_timeouts_total") == 3


def test_a_failure_does_not_hold_up_other_keys() -> None:
    done: list[str] = []

    async def scenario() -> None:
        async def reconcile(key: ObjectKey) -> ReconcileResult:
            if key.name == "bad":
                raise ZeroDivisionError
            done.append(key.name)
            return ReconcileResult.done()

        loop = ReconcileLoop("c", reconcile, Metrics())
        working = asyncio.create_task(loop.run())
        for name in ("bad", "b", "c"):
            loop.queue.add(ObjectKey("n", name))
        await asyncio.sleep(0.001)
        loop.queue.close()
        await working

    run(scenario())
    assert done == ["b", "c"]
