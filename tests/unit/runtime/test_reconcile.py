"""The reconcile loop: what each outcome does to the key, and which metrics count it."""

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


def run_loop(
    reconcile: Callable[[ObjectKey], Awaitable[ReconcileResult]], seconds: float = 50.0
) -> tuple[list[float], Metrics]:
    """Run a loop with one key for some virtual seconds; return the times of its reconciliations, and the metrics."""
    times: list[float] = []
    metrics = Metrics()

    async def scenario() -> None:
        start = loop_time()

        async def timed(key: ObjectKey) -> ReconcileResult:
            times.append(round(loop_time() - start, 3))
            return await reconcile(key)

        loop = ReconcileLoop("c", timed, metrics, max_concurrent=2, timeout=5.0)
        working = asyncio.create_task(loop.run())
        loop.queue.add(KEY)
        await asyncio.sleep(seconds)
        loop.queue.close()
        await working

    run(scenario())
    return times, metrics


def count(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"controller_runtime_{name}", {"controller": "c", **labels})


def test_every_metric_exists_from_the_start() -> None:
    metrics = Metrics()

    async def succeed(_: ObjectKey) -> ReconcileResult:
        return ReconcileResult.done()

    async def scenario() -> None:
        ReconcileLoop("c", succeed, metrics, max_concurrent=3)

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


def test_a_loop_enqueues_nothing_before_it_runs_and_all_objects_when_it_starts() -> None:
    done: list[str] = []

    async def reconcile(key: ObjectKey) -> ReconcileResult:
        done.append(key.name)
        return ReconcileResult.done()

    async def scenario() -> None:
        informer: Informer[Any] = Informer(None, Resource("", "v1", "widgets", "Widget", dict))  # type: ignore[arg-type]
        loop = ReconcileLoop("c", reconcile, Metrics())
        loop.watches(informer)
        for name in ("deleted", "present"):
            informer._notify(informer.store.put(ObjectKey("n", name), object()))
        informer.store.remove(ObjectKey("n", "deleted"))
        assert len(loop.queue) == 0
        working = asyncio.create_task(loop.run())
        await asyncio.sleep(1)
        informer._notify(informer.store.put(ObjectKey("n", "new"), object()))
        await asyncio.sleep(1)
        loop.queue.close()
        await working

    run(scenario())
    assert done == ["present", "new"]


def test_what_changes_comes_before_what_was_there_at_the_start_and_other_tasks_have_their_turn() -> None:
    done: list[str] = []
    turns = 0

    async def reconcile(key: ObjectKey) -> ReconcileResult:
        done.append(key.name)
        return ReconcileResult.done()

    async def scenario() -> None:
        nonlocal turns
        informer: Informer[Any] = Informer(None, Resource("", "v1", "widgets", "Widget", dict))  # type: ignore[arg-type]
        loop = ReconcileLoop("c", reconcile, Metrics())
        loop.watches(informer)
        for number in range(2000):
            informer._notify(informer.store.put(ObjectKey("n", str(number)), object()))
        working = asyncio.create_task(loop.run())
        while len(done) < 100:
            await asyncio.sleep(0)
            turns += 1
        informer._notify(informer.store.put(ObjectKey("n", "new"), object()))
        await asyncio.sleep(1)
        loop.queue.close()
        await working

    run(scenario())
    assert turns >= 100
    assert done.index("new") <= 101
    assert len(done) == 2001


def test_a_key_that_is_done_is_not_requeued() -> None:
    async def reconcile(_: ObjectKey) -> ReconcileResult:
        return ReconcileResult.done()

    times, metrics = run_loop(reconcile)
    assert times == [0]
    assert count(metrics, "reconcile_total", result="success") == 1
    assert count(metrics, "reconcile_time_seconds_count") == 1


def test_a_key_is_requeued_after_the_given_delay() -> None:
    async def reconcile(_: ObjectKey) -> ReconcileResult:
        return ReconcileResult.after(20)

    times, metrics = run_loop(reconcile)
    assert times == [0, 20, 40]
    assert count(metrics, "reconcile_total", result="requeue_after") == 3


def test_a_key_to_retry_is_requeued_with_growing_delays() -> None:
    async def reconcile(_: ObjectKey) -> ReconcileResult:
        return ReconcileResult.retry()

    times, metrics = run_loop(reconcile)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert len(times) > 8
    assert gaps[-1] > 20 * gaps[0]
    assert count(metrics, "reconcile_total", result="requeue") == len(times)
    assert count(metrics, "reconcile_errors_total") == 0


@pytest.mark.parametrize(
    ("error", "retried", "counter"),
    [
        (Unreachable("no answer", sent=False), True, "reconcile_errors_total"),
        (TerminalError("cannot succeed"), False, "terminal_reconcile_errors_total"),
        (ZeroDivisionError("a bug"), True, "reconcile_panics_total"),
    ],
)
def test_a_failure_is_counted_logged_and_retried_unless_terminal(
    error: Exception, retried: bool, counter: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def reconcile(_: ObjectKey) -> ReconcileResult:
        raise error

    times, metrics = run_loop(reconcile, 1.0)
    assert (len(times) > 1) == retried
    assert count(metrics, counter) == len(times)
    assert count(metrics, "reconcile_errors_total") == len(times)
    assert count(metrics, "reconcile_total", result="error") == len(times)
    logged = capsys.readouterr().err
    assert str(error) in logged
    assert ("Traceback" in logged) == isinstance(error, ZeroDivisionError)


@pytest.mark.parametrize(("error", "text"), [(TimeoutError(), "timed out after 5 s"), (KeyError(), "error=KeyError")])
def test_an_error_without_a_message_is_logged_by_its_kind(
    error: Exception, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def reconcile(_: ObjectKey) -> ReconcileResult:
        raise error

    run_loop(reconcile, 1.0)
    assert text in capsys.readouterr().err


def test_a_reconciliation_that_times_out_is_cancelled_and_retried() -> None:
    async def reconcile(_: ObjectKey) -> ReconcileResult:
        await asyncio.sleep(1000)
        return ReconcileResult.done()

    times, metrics = run_loop(reconcile, 11.0)
    assert [round(time) for time in times] == [0, 5, 10]
    assert count(metrics, "reconcile_timeouts_total") == 3


def test_a_failing_key_does_not_block_other_keys() -> None:
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
