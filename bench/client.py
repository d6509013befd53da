"""Benchmark of the Kubernetes client: watch decoding, memory per cached object, status patches; compared with others.

Run by `make bench-client`. All clients do the same work on the same bytes and the same API server, in turns; each
figure is the median of the rounds.
"""

import asyncio
import gc
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import orjson

from vmafx.api.job import JobView, VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.devcluster import ClusterOptions, DevCluster, crds
from vmafx.devcluster.components import CONTROLLER_MANAGER, SCHEDULER
from vmafx.kube import JOBS, Client, ObjectKey, load_config
from vmafx.kube.watch import decode_events, event_decoder

EVENT_BYTES = 1400
BATCH = 40  # events that arrive at once in a burst
EVENTS = 40_000
PATCHES = 1_000
AT_ONCE = 32
ROUNDS = 5


async def sample_event(client: Client) -> dict[str, Any]:
    """A watch event of a running job as the server sends it, padded to EVENT_BYTES."""
    spec = VmafxJobSpec(
        reference="s3://corpus/park/reference.mp4",
        distorted="s3://corpus/park/h264-2mbit.mp4",
        backend="cuda",
        priority=10,
        nodeSelector={"rack": "a"},
    )
    labels = {"team": "encoding", "batch": "nightly-2026-11-15"}
    job = await client.create(JOBS, VmafxJob(metadata=ObjectMeta(name="sample", labels=labels), spec=spec), "default")
    status = {
        "phase": "Running",
        "assignedNode": "nvidia-rack-a",
        "controllerJobID": f"{job.metadata.uid}-0",
        "startedAt": "2026-11-15T12:00:00Z",
        "attempts": 1,
    }
    key = ObjectKey("default", "sample")
    await client.patch_status(JOBS, key, status)
    sent = await client.get(JOBS.decoded_as(dict), key)
    event = {"type": "MODIFIED", "object": sent}
    sent["metadata"]["annotations"] = {"note": ""}
    sent["metadata"]["annotations"]["note"] = "x" * (EVENT_BYTES - len(orjson.dumps(event)))
    return event


def lines(event: dict[str, Any], count: int) -> list[bytes]:
    """Batches of lines with `count` events, each of another job."""
    metadata, out = event["object"]["metadata"], []
    for number in range(count):
        metadata["name"], metadata["resourceVersion"] = f"job-{number:06}", str(100_000 + number)
        metadata["uid"] = f"8b2aea28-9747-4c7d-9a86-{number:012}"
        out.append(orjson.dumps(event))
    return [b"\n".join(out[start : start + BATCH]) for start in range(0, count, BATCH)]


def with_views(batch: bytes) -> list[Any]:
    return decode_events(batch, VIEWS)


def with_whole_jobs(batch: bytes) -> list[Any]:
    return decode_events(batch, WHOLE)


def with_orjson(batch: bytes) -> list[Any]:
    return [orjson.loads(line) for line in batch.split(b"\n")]


def with_json(batch: bytes) -> list[Any]:
    return [json.loads(line) for line in batch.split(b"\n")]


def with_official(batch: bytes) -> list[Any]:
    return [OFFICIAL.unmarshal_event(line.decode(), "object") for line in batch.split(b"\n")]


OFFICIAL: Any = None
VIEWS, WHOLE = event_decoder(JobView), event_decoder(VmafxJob)
DECODERS: dict[str, Callable[[bytes], list[Any]]] = {
    "vmafx, slim views": with_views,
    "vmafx, whole jobs": with_whole_jobs,
    "orjson to dicts": with_orjson,
    "json to dicts": with_json,
    "official client's watch": with_official,
}


def official_watch() -> Any:
    from kubernetes import watch  # noqa: PLC0415 - slow import that only some processes need

    return watch.Watch()


def measure_decoding(batches: list[bytes]) -> dict[str, float]:
    """Events per second on one core."""
    global OFFICIAL  # noqa: PLW0603 - created once, outside of the measurement
    OFFICIAL = official_watch()
    rates: dict[str, list[float]] = {name: [] for name in DECODERS}
    for _ in range(ROUNDS):
        for name, decode in DECODERS.items():
            gc.collect()
            started = time.process_time()
            for batch in batches:
                decode(batch)
            rates[name].append(EVENTS / (time.process_time() - started))
    return {name: statistics.median(values) for name, values in rates.items()}


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _keep(name: str, path: str, answer: Any) -> None:
    """In a separate process: decode all events, keep the objects, and report how much the process grew per object."""
    global OFFICIAL  # noqa: PLW0603
    if "official" in name:
        OFFICIAL = official_watch()
    decode, kept = DECODERS[name], []
    with Path(path).open("rb") as file:
        first = file.readline()
        decode(first.replace(b"\x00", b"\n").rstrip(b"\n"))
        gc.collect()
        before = resident()
        for line in file:
            kept += [_object(event) for event in decode(line.rstrip(b"\n").replace(b"\x00", b"\n"))]
    gc.collect()
    answer.put((resident() - before) / len(kept))


def _object(event: Any) -> Any:
    return event["object"] if isinstance(event, dict) else event.object


def measure_memory(batches: list[bytes]) -> dict[str, float]:
    """Memory growth in bytes per kept object."""
    context = multiprocessing.get_context("spawn")
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events"
        path.write_bytes(b"\n".join(batch.replace(b"\n", b"\x00") for batch in batches))
        for name in DECODERS:
            answer = context.Queue()
            process = context.Process(target=_keep, args=(name, str(path), answer))
            process.start()
            out[name] = answer.get(timeout=120)
            process.join()
    return out


async def _cpu_per_call(call: Callable[[int], Awaitable[Any]]) -> float:
    """CPU milliseconds of this process per call, with AT_ONCE calls in parallel."""
    numbers = iter(range(PATCHES))

    async def worker() -> None:
        for number in numbers:
            await call(number)

    started = time.process_time()
    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return (time.process_time() - started) / PATCHES * 1000


async def measure_patches(kubeconfig: Path) -> dict[str, float]:
    """CPU milliseconds per status patch."""
    from kubernetes.aio import client as official  # noqa: PLC0415
    from kubernetes.aio import config as official_config  # noqa: PLC0415

    configuration = official.Configuration()
    await official_config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    costs: dict[str, list[float]] = {"vmafx": [], "official client (asyncio)": []}
    async with Client(load_config(kubeconfig)) as ours, official.ApiClient(configuration) as api:
        for number in range(AT_ONCE):
            spec = VmafxJobSpec(reference="file:///a.mp4", distorted="file:///b.mp4")
            await ours.create(JOBS, VmafxJob(metadata=ObjectMeta(name=f"patched-{number}"), spec=spec), "default")
        theirs = official.CustomObjectsApi(api)

        def patch(number: int) -> Any:
            status = {"phase": "Running", "assignedNode": f"node-{number}", "attempts": number}
            return ours.patch_status(
                JOBS.decoded_as(JobView), ObjectKey("default", f"patched-{number % AT_ONCE}"), status
            )

        def their_patch(number: int) -> Any:
            status = {"phase": "Running", "assignedNode": f"node-{number}", "attempts": number}
            return theirs.patch_namespaced_custom_object_status(
                "vmafx.dev", "v1", "default", "vmafxjobs", f"patched-{number % AT_ONCE}", {"status": status},
                _content_type="application/merge-patch+json",
            )  # fmt: skip

        for _ in range(ROUNDS):
            costs["vmafx"].append(await _cpu_per_call(patch))
            costs["official client (asyncio)"].append(await _cpu_per_call(their_patch))
    return {name: statistics.median(values) for name, values in costs.items()}


def table(title: str, unit: str, figures: dict[str, float], goal: str) -> None:
    ours = next(iter(figures.values()))
    print(f"\n{title} ({unit}; goal {goal})\n")
    print("| | " + unit + " | ratio to ours |\n|---|---|---|")
    for name, figure in figures.items():
        shown = f"{figure:,.0f}" if figure >= 10 else f"{figure:.3f}"
        print(f"| {name} | {shown} | {figure / ours:.2f} |")


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def prepare(kubeconfig: Path) -> dict[str, Any]:
    async with Client(load_config(kubeconfig)) as client:
        await crds.install_crds(client)
        return await sample_event(client)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        options = ClusterOptions(without=frozenset({CONTROLLER_MANAGER, SCHEDULER}), tethered=True)
        with DevCluster(Path(folder) / "bench", options) as cluster:
            event = asyncio.run(prepare(cluster.kubeconfig))
            log(f"patching: {ROUNDS} rounds of {PATCHES} status patches, {AT_ONCE} at a time")
            patches = run_patches(cluster.kubeconfig)
    batches = lines(event, EVENTS)
    size = sum(map(len, batches)) // EVENTS
    log(f"decoding: {ROUNDS} rounds of {EVENTS} events of {size} bytes, {BATCH} at a time")
    rates = measure_decoding(batches)
    log(f"keeping: {EVENTS} objects, a process for each")
    memory = measure_memory(batches)
    python = sys.version.split()[0]
    print(f"Python {python}, {os.cpu_count()} cores, msgspec {msgspec.__version__}; events of {size} bytes")
    table("Watch events decoded by one core", "events/s", rates, "200,000 into typed objects")
    table("Memory of a kept object", "bytes", memory, "3,500 at most")
    table("CPU of a status patch", "ms", patches, "0.4 at most")


def run_patches(kubeconfig: Path) -> dict[str, float]:
    """On uvloop, as in production."""
    import uvloop  # noqa: PLC0415

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(measure_patches(kubeconfig))


if __name__ == "__main__":
    main()
