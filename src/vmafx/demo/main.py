"""The steps of the demo. Only the output folder remains afterwards."""

import asyncio
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from vmafx.demo import jobs
from vmafx.demo.clips import ENCODES, REFERENCE, SECONDS, SIZE, EncodeProcess
from vmafx.demo.cluster import DemoCluster
from vmafx.demo.progress import DemoError, StepPrinter, short_path
from vmafx.devcluster import binaries, tools
from vmafx.devcluster.components import APISERVER, ETCD
from vmafx.reports.charts import RatePoint
from vmafx.reports.rate_quality import rate_quality_html, rate_quality_png

# Names in the output folder.
PAGE, PICTURE, JOBS = "rate-quality.html", "rate-quality.png", "jobs.yaml"
CLIPS, AGENT = "clips", "agent"


def run(output: Path, *, keep: bool, console: Console | None = None) -> None:
    """Run the demo; with `keep`, leave the processes running until Ctrl-C."""
    started = time.monotonic()
    console = console or Console()
    steps = StepPrinter(console)
    _clear(output)
    with steps.running("Looking for etcd, kube-apiserver and kubectl"):
        binaries.find_binaries((ETCD, APISERVER), steps)
        kubectl = tools.kubectl(steps)
    with _running_cluster(output, steps) as cluster:
        jobs.write(output / JOBS, output / CLIPS)
        with steps.running(f"Submitting {len(ENCODES)} jobs: kubectl apply -f {short_path(output / JOBS)}"):
            jobs.apply(kubectl, cluster.kubeconfig, output / JOBS)
        kbits = {encode.name: encode.kbits(output / CLIPS) for encode in ENCODES}
        scores = asyncio.run(jobs.watch_until_scored(cluster.kubeconfig, kbits, console, cluster.check))
        with steps.running(f"Writing {short_path(output / PAGE)} and {PICTURE}"):
            points = [RatePoint(one.name, one.codec, kbits[one.name], scores[one.name]) for one in ENCODES]
            (output / PAGE).write_text(rate_quality_html(points, REFERENCE), encoding="utf-8")
            (output / PICTURE).write_bytes(rate_quality_png(points))
        steps.print(f"\nDone in {time.monotonic() - started:.1f} s. Next:")
        if keep:
            _wait_for_interrupt(cluster, kubectl, steps)
            return
    for line in next_steps(output):
        steps.print(f"  {line}")


def _clear(output: Path) -> None:
    """Create the output folder and remove the files of an earlier demo; the agent's folder stays."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(output / CLIPS, ignore_errors=True)
        for name in (PAGE, PICTURE, JOBS):
            (output / name).unlink(missing_ok=True)
    except OSError as error:
        raise DemoError(f"cannot write {output}: {error.strerror}; choose another folder with --output") from error


@contextmanager
def _running_cluster(output: Path, steps: StepPrinter) -> Iterator[DemoCluster]:
    """Start the cluster while ffmpeg encodes the clips; on exit, stop both and delete the cluster's data."""
    with ExitStack() as cleanup:
        folder = cleanup.enter_context(tempfile.TemporaryDirectory(prefix="vmafx-demo-", ignore_cleanup_errors=True))
        cluster = DemoCluster(Path(folder), output / AGENT, steps)
        cleanup.callback(cluster.stop)
        encoding = EncodeProcess(output / CLIPS)
        cleanup.callback(encoding.stop)
        with steps.running("Starting a Kubernetes API server with the vmafx CRDs"):
            cluster.start_control_plane()
        with steps.running("Starting the operator, the controller and an agent on this machine"):
            cluster.start_roles()
        with steps.running(f"Encoding a reference clip ({SIZE}, {SECONDS} s) in {len(ENCODES)} ways"):
            encoding.wait()
        yield cluster


def next_steps(output: Path) -> list[str]:
    """Commands that work wherever vmafx is installed, also without its sources and Makefile."""
    clips = short_path(output / CLIPS)
    folder = "" if output == Path("demo").absolute() else f" --output {short_path(output)}"
    return [
        f"xdg-open {short_path(output / PAGE)}",
        f"{_vmafx()} score {clips}/{REFERENCE} {clips}/av1.mp4 --report report.html",
        f"{_vmafx()} demo --keep{folder}     # keeps the cluster running, for kubectl and `vmafx top`",
    ]


def _wait_for_interrupt(cluster: DemoCluster, kubectl_path: Path, steps: StepPrinter) -> None:
    """Return on Ctrl-C; raise if a process of the cluster exits."""
    kubectl = "kubectl" if shutil.which("kubectl") else str(kubectl_path)
    for line in (f"export KUBECONFIG={cluster.kubeconfig}", f"{kubectl} get vmjob,vmnode", f"{_vmafx()} top"):
        steps.print(f"  {line}")
    steps.print("\nThe cluster keeps running. Press Ctrl-C to stop it.")
    try:
        while True:
            cluster.check()
            time.sleep(0.5)
    except KeyboardInterrupt:
        steps.print("Stopping the cluster")


def _vmafx() -> str:
    """The vmafx command as the user can type it here."""
    return "vmafx" if shutil.which("vmafx") else short_path(Path(sys.executable).with_name("vmafx"))
