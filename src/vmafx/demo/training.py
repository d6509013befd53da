"""`vmafx demo --training`: a model learns from what a fleet scores, and from what people say about it.

The six encodes are scored several times. In the later rounds their jobs also have human scores: made up here, they rate
low quality lower than VMAF does. Every version of the model goes to an OCI registry on this machine; at the end, the
encodes are scored with the first and the latest one.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from vmafx.api.job import FINISHED
from vmafx.api.kinds import VmafxJob, VmafxModelTraining
from vmafx.api.meta import API_VERSION
from vmafx.api.training import ModelCheckpoint
from vmafx.demo import jobs
from vmafx.demo.clips import ENCODES, RATE, REFERENCE, SECONDS, Encode, EncodeProcess
from vmafx.demo.cluster import NAMESPACE, DemoCluster
from vmafx.demo.progress import DemoError, StepPrinter
from vmafx.demo.trainer import start_trainer
from vmafx.devcluster import binaries, tools
from vmafx.devcluster.components import APISERVER, ETCD
from vmafx.devcluster.registry import OciRegistry, find_registry
from vmafx.kube import JOBS, TRAININGS, Client, ObjectKey, load_config
from vmafx.training.held_out import is_held_out

TRAINING = "house"
MANIFEST, CLIPS, AGENT = "training.yaml", "clips", "agent"  # names in the output folder
ROUNDS = 4  # of scoring all encodes; from the second on, their jobs have human scores
TIMEOUT = 120.0  # seconds for one step
POLL_INTERVAL = 0.2  # seconds
Scores = dict[str, float]  # by the name of the encode


def human_score(score: float) -> float:
    """What people say in this demo about a clip with this VMAF score."""
    return max(0.0, score - 0.25 * (100.0 - score))


def run(output: Path, console: Console | None = None) -> None:
    """Run the demo. Only the output folder remains afterwards."""
    started, console = time.monotonic(), console or Console()
    steps = StepPrinter(console)
    output.mkdir(parents=True, exist_ok=True)
    with steps.running("Looking for etcd, kube-apiserver, kubectl and an OCI registry"):
        binaries.find_binaries((ETCD, APISERVER), steps)
        kubectl, registry = tools.kubectl(steps), find_registry(steps)
    with _running_cluster(output, registry, steps) as (cluster, repository):
        manifest = _write_training(output / MANIFEST, repository)
        with steps.running(f"Starting the training: kubectl apply -f {MANIFEST}"):
            jobs.apply(kubectl, cluster.kubeconfig, manifest)
            asyncio.run(start_trainer(cluster, f"vmafx-trainer-{TRAINING}"))
            _wait(cluster, lambda training: training.status.phase == "Running", "the training does not run")
        scores: Scores = {}
        trained = 0  # clips; some are held out
        for number in range(1, ROUNDS + 1):
            people = " with human scores" if scores else ""
            with steps.running(f"Round {number}: scoring {len(ENCODES)} encodes{people}, and training on their frames"):
                scored = _score_round(cluster, kubectl, output, number, scores)
                trained += sum(not is_held_out(job.metadata.uid) for job in scored.values())
                _wait(cluster, _has_learned(trained * RATE * SECONDS), "the samples were not used")
            scores = scores or {name: job.status.score or 0.0 for name, job in scored.items()}
        with steps.running("Waiting for the last version of the model"):
            training = _wait(cluster, _is_published, "the model has not been published")
        versions = training.status.checkpoints
        with steps.running("Scoring the encodes with the first and the latest version"):
            learned = [_score_with(output, f"oci://{repository}@{one.digest}") for one in (versions[0], versions[-1])]
        _print_results(console, steps, cluster, kubectl, versions, scores, learned)
        steps.print(f"\nDone in {time.monotonic() - started:.1f} s. docs/training.md explains what happened.")


@contextmanager
def _running_cluster(output: Path, registry: Path, steps: StepPrinter) -> Iterator[tuple[DemoCluster, str]]:
    """The cluster and the repository for the model; all of it ends with the context."""
    with ExitStack() as cleanup:
        folder = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="vmafx-demo-")))
        cluster = DemoCluster(folder, output / AGENT, steps, training=True)
        cleanup.callback(cluster.stop)
        encoding = EncodeProcess(output / CLIPS)
        cleanup.callback(encoding.stop)
        store = OciRegistry(registry, folder / "registry")
        cleanup.callback(store.stop)
        with steps.running("Starting a Kubernetes API server with the vmafx CRDs, and an OCI registry"):
            cluster.start_control_plane()
            store.start()
        with steps.running("Starting the operator, the controller and an agent on this machine"):
            cluster.start_roles()
        with steps.running(f"Encoding a reference clip in {len(ENCODES)} ways"):
            encoding.wait()
        yield cluster, f"{store.address}/demo/vmaf"


def _write_training(file: Path, repository: str) -> Path:
    spec = {
        "baseModel": "vmaf_v0.6.1",
        "learningRate": 0.01,
        "emaDecay": 0.95,  # a short demo has few steps to average over
        "checkpoint": {"interval": "2s", "minSamples": 100},
        "outputRegistry": repository,
    }
    meta = {"name": TRAINING}
    body = {"apiVersion": API_VERSION, "kind": "VmafxModelTraining", "metadata": meta, "spec": spec}
    file.write_bytes(msgspec.yaml.encode(body))
    return file


def _score_round(cluster: DemoCluster, kubectl: Path, output: Path, number: int, known: Scores) -> dict[str, VmafxJob]:
    """Score all encodes in jobs of this round, with human scores if their scores are known. Jobs by encode."""
    clips, manifest = output / CLIPS, output / f"jobs-{number}.yaml"
    documents = [_job(encode, number, clips, known.get(encode.name)) for encode in ENCODES]
    manifest.write_bytes(b"---\n".join(msgspec.yaml.encode(document) for document in documents))
    jobs.apply(kubectl, cluster.kubeconfig, manifest)
    return asyncio.run(_wait_for_scores(cluster, number))


def _job(encode: Encode, number: int, clips: Path, score: float | None) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "reference": (clips / REFERENCE).as_uri(),
        "distorted": (clips / encode.file).as_uri(),
    }
    if score is not None:
        spec["humanScore"] = round(human_score(score), 2)
    return {
        "apiVersion": API_VERSION,
        "kind": "VmafxJob",
        "metadata": {"name": f"{encode.name}-{number}"},
        "spec": spec,
    }


async def _wait_for_scores(cluster: DemoCluster, number: int) -> dict[str, VmafxJob]:
    deadline = time.monotonic() + TIMEOUT
    async with Client(load_config(cluster.kubeconfig)) as client:
        while True:
            found = {job.metadata.name: job for job in (await client.list(JOBS, NAMESPACE)).items}
            names = {encode.name: f"{encode.name}-{number}" for encode in ENCODES}
            finished = {
                encode: found[name]
                for encode, name in names.items()
                if name in found and found[name].status.phase in FINISHED
            }
            if len(finished) == len(ENCODES):
                break
            if time.monotonic() > deadline:
                raise DemoError(f"not all jobs were scored within {TIMEOUT:.0f} s")
            cluster.check()
            await asyncio.sleep(POLL_INTERVAL)
    if failed := [name for name, job in finished.items() if job.status.score is None]:
        raise DemoError(f"jobs without a score: {', '.join(failed)}")
    return finished


def _has_learned(samples: int) -> Callable[[VmafxModelTraining], bool]:
    """Whether that many samples are used, and there is a version of the model."""
    return lambda training: training.status.currentSamples >= samples and len(training.status.checkpoints) > 0


def _is_published(training: VmafxModelTraining) -> bool:
    versions = training.status.checkpoints
    return len(versions) >= 2 and all(one.pushed for one in versions)


def _wait(cluster: DemoCluster, holds: Callable[[VmafxModelTraining], bool], failure: str) -> VmafxModelTraining:
    return asyncio.run(_watch(cluster, holds, failure))


async def _watch(cluster: DemoCluster, holds: Callable[[VmafxModelTraining], bool], failure: str) -> VmafxModelTraining:
    deadline = time.monotonic() + TIMEOUT
    async with Client(load_config(cluster.kubeconfig)) as client:
        while not holds(training := await client.get(TRAININGS, ObjectKey(NAMESPACE, TRAINING))):
            if time.monotonic() > deadline:
                raise DemoError(f"{failure} within {TIMEOUT:.0f} s: {training.status.message or training.status.phase}")
            cluster.check()
            await asyncio.sleep(POLL_INTERVAL)
    return training


def _score_with(output: Path, model: str) -> Scores:
    """Score all encodes with `vmafx score --model`."""
    clips = output / CLIPS
    command = [
        sys.executable, "-c", "from vmafx.cli.main import main; main()", "score", str(clips / REFERENCE),
        *(str(clips / encode.file) for encode in ENCODES), "--model", model, "--json",
        "--allow-private",  # the registry is on this machine
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, check=False, timeout=TIMEOUT)
    if done.returncode:
        raise DemoError(f"vmafx score --model {model} failed: {done.stderr.decode().strip()}")
    results = msgspec.json.decode(done.stdout, type=list[dict[str, Any]])
    return {encode.name: float(result["score"]) for encode, result in zip(ENCODES, results, strict=True)}


def _print_results(
    console: Console, steps: StepPrinter, cluster: DemoCluster, kubectl: Path,
    versions: tuple[ModelCheckpoint, ...], scores: Scores, learned: list[Scores],
) -> None:  # fmt: skip
    command = [str(kubectl), "--kubeconfig", str(cluster.kubeconfig), "get", "vmtrain"]
    steps.print("\n$ kubectl get vmtrain")
    steps.print(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.rstrip())
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    names = ("VMAF", "PEOPLE", f"VERSION {versions[0].number}", f"VERSION {versions[-1].number}")
    table.add_column("ENCODE", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for name, score in scores.items():
        cells = (score, human_score(score), *(one[name] for one in learned))
        table.add_row(name, *(f"{value:.2f}" for value in cells))
    steps.print("")
    console.print(table)
