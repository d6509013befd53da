"""The demo from nothing to a picture, and back to nothing but the picture."""

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
from vmafx.demo.progress import DemoError, StepPrinter
from vmafx.devcluster import binaries, tools
from vmafx.devcluster.components import APISERVER, ETCD
from vmafx.reports.charts import RatePoint
from vmafx.reports.rate_quality import rate_quality_html, rate_quality_png

PAGE, PICTURE, JOBS = "rate-quality.html", "rate-quality.png", "jobs.yaml"
CLIPS, AGENT = "clips", "agent"


def run(output: Path, *, keep: bool, console: Console | None = None) -> None:
    """All of it; with `keep`, until somebody says stop."""
    began = time.monotonic()
    console = console or Console()
    steps = StepPrinter(console)
    _prepare(output)
    with steps.doing("etcd, kube-apiserver and kubectl are at hand"):
        binaries.find_binaries((ETCD, APISERVER), steps)
        kubectl = tools.kubectl(steps)
    with _started(output, steps) as cluster:
        jobs.write(output / JOBS, output / CLIPS)
        with steps.doing(f"kubectl apply -f {_short(output / JOBS)}: {len(ENCODES)} jobs"):
            jobs.apply(kubectl, cluster.kubeconfig, output / JOBS)
        kbits = {encode.name: encode.kbits(output / CLIPS) for encode in ENCODES}
        found = asyncio.run(jobs.watch_until_scored(cluster.kubeconfig, kbits, console, cluster.check))
        with steps.doing(f"drawn: {_short(output / PAGE)} and {PICTURE}"):
            _draw(output, [RatePoint(one.name, one.codec, kbits[one.name], found[one.name]) for one in ENCODES])
        steps.say(f"\nAll done in {time.monotonic() - began:.1f} s. Next:")
        if keep:
            _stay(cluster, kubectl, steps)
            return
    for line in next_steps(output):
        steps.say(f"  {line}")


def _prepare(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(output / CLIPS, ignore_errors=True)
        for name in (PAGE, PICTURE, JOBS):
            (output / name).unlink(missing_ok=True)
    except OSError as error:
        raise DemoError(f"cannot write {output}: {error.strerror}; name another folder by --output") from error


@contextmanager
def _started(output: Path, steps: StepPrinter) -> Iterator[DemoCluster]:
    """Clips, and beside them the processes; these and all they stored are gone at the end."""
    with ExitStack() as ended:
        folder = ended.enter_context(tempfile.TemporaryDirectory(prefix="vmafx-demo-", ignore_cleanup_errors=True))
        cluster = DemoCluster(Path(folder), output / AGENT, steps)
        ended.callback(cluster.stop)
        making = EncodeProcess(output / CLIPS)
        ended.callback(making.stop)
        with steps.doing("a Kubernetes API server with the kinds of vmafx"):
            cluster.start_control_plane()
        with steps.doing("the operator, the controller, and this machine as an agent"):
            cluster.start_roles()
        with steps.doing(f"a reference clip ({SIZE}, {SECONDS} s) and {len(ENCODES)} encodes of it"):
            making.wait()
        yield cluster


def _draw(output: Path, points: list[RatePoint]) -> None:
    (output / PAGE).write_text(rate_quality_html(points, REFERENCE), encoding="utf-8")
    (output / PICTURE).write_bytes(rate_quality_png(points))


def next_steps(output: Path) -> list[str]:
    """Commands that work wherever vmafx is installed: `make` is for those who have its sources."""
    clips = _short(output / CLIPS)
    folder = "" if output == Path("demo").absolute() else f" --output {_short(output)}"
    return [
        f"open {_short(output / PAGE)}",
        f"{_vmafx()} score {clips}/{REFERENCE} {clips}/av1.mp4 --report report.html",
        f"{_vmafx()} demo --keep{folder}     # leaves it running, to look around with kubectl and `vmafx top`",
    ]


def _stay(cluster: DemoCluster, kubectl: Path, steps: StepPrinter) -> None:
    """Until Ctrl-C, or until a process ends by itself."""
    known = "kubectl" if shutil.which("kubectl") else str(kubectl)
    for line in (f"export KUBECONFIG={cluster.kubeconfig}", f"{known} get vmjob,vmnode", f"{_vmafx()} top"):
        steps.say(f"  {line}")
    steps.say("\nIt all runs on, until Ctrl-C here.")
    try:
        while True:
            cluster.check()
            time.sleep(0.5)
    except KeyboardInterrupt:
        steps.say("ending it")


def _vmafx() -> str:
    """As it can be typed here."""
    return "vmafx" if shutil.which("vmafx") else _short(Path(sys.executable).with_name("vmafx"))


def _short(path: Path) -> str:
    """From here, where that is shorter."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
