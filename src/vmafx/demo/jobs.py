"""The VmafxJobs of the demo: their manifest, and a live table until all are scored."""

import asyncio
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec
from rich.console import Console
from rich.live import Live as Screen
from rich.table import Table
from rich.text import Text

from vmafx.api.job import FINISHED
from vmafx.api.meta import API_VERSION
from vmafx.demo.clips import ENCODES, REFERENCE
from vmafx.demo.cluster import NAMESPACE
from vmafx.demo.progress import DemoError
from vmafx.fleet.rows import JobRow, job_row
from vmafx.fleet.watch import LiveCaches, fleet_jobs_informer
from vmafx.kube import Client, load_config

SCORED_TIMEOUT = 180.0  # seconds
STYLES = {"Pending": "yellow", "Running": "cyan", "Succeeded": "green", "Failed": "red"}


def write(file: Path, clips: Path) -> None:
    """Write the manifest of all jobs, one YAML document each."""
    documents = [
        {
            "apiVersion": API_VERSION,
            "kind": "VmafxJob",
            "metadata": {"name": encode.name, "labels": {"codec": encode.codec}},
            "spec": {"reference": (clips / REFERENCE).as_uri(), "distorted": (clips / encode.file).as_uri()},
        }
        for encode in ENCODES
    ]
    file.write_bytes(b"---\n".join(msgspec.yaml.encode(document) for document in documents))


def apply(kubectl: Path, kubeconfig: Path, file: Path) -> None:
    command = [str(kubectl), "--kubeconfig", str(kubeconfig), "apply", "-f", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise DemoError(f"kubectl apply -f {file} failed: {done.stderr.strip()}")


async def watch_until_scored(
    kubeconfig: Path, kbits: Mapping[str, float], console: Console, check: Callable[[], None]
) -> dict[str, float]:
    """Wait for all jobs and return their scores by name. Without a terminal, only the final table is printed.

    `check` raises if a process that the jobs need has exited.
    """
    async with Client(load_config(kubeconfig)) as client:
        jobs = fleet_jobs_informer(client, NAMESPACE)
        rows: list[JobRow] = []
        try:
            async with asyncio.timeout(SCORED_TIMEOUT), LiveCaches(client, jobs) as live:
                with Screen(console=console, auto_refresh=False) if console.is_terminal else nullcontext() as screen:
                    while not _finished(rows := [job_row(job) for job in jobs.store.values()]):
                        if screen is not None:
                            screen.update(table(rows, kbits), refresh=True)
                        check()
                        await live.changes(within=0.25)
                    if screen is not None:
                        screen.update(table(rows, kbits), refresh=True)
                    else:
                        console.print(table(rows, kbits))
        except TimeoutError:
            raise DemoError(f"not all jobs were scored within {SCORED_TIMEOUT:.0f} s: {unscored(rows)}") from None
    return scores(rows)


def _finished(rows: Sequence[JobRow]) -> bool:
    return len(rows) >= len(ENCODES) and all(row.phase in FINISHED for row in rows)


def unscored(rows: Sequence[JobRow]) -> str:
    """The jobs without a score, and the phase and message of each."""
    by_name = {row.name: row for row in rows}
    lines = []
    for encode in ENCODES:
        row = by_name.get(encode.name)
        if row is None:
            lines.append(f"{encode.name} is not listed")
        elif row.score is None:
            detail = row.message or row.reason
            lines.append(f"{encode.name} is {row.phase}" + (f" ({detail})" if detail else ""))
    return ", ".join(lines)


def scores(rows: Sequence[JobRow]) -> dict[str, float]:
    """The score of each job by name; raise DemoError if one has none."""
    for row in rows:
        if row.score is None:
            raise DemoError(f"job {row.name} failed: {row.message or row.reason or row.phase}")
    return {row.name: row.score for row in rows if row.score is not None}


def table(rows: Sequence[JobRow], kbits: Mapping[str, float]) -> Table:
    by_name = {row.name: row for row in rows}
    shown = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for name in ("JOB", "CODEC", "KBIT/S", "PHASE", "NODE", "VMAF"):
        shown.add_column(name, justify="right" if name in {"KBIT/S", "VMAF"} else "left", no_wrap=True)
    for encode in ENCODES:
        row = by_name.get(encode.name)
        phase = Text(row.phase, STYLES.get(row.phase, "")) if row else "-"
        score = f"{row.score:.2f}" if row and row.score is not None else "-"
        node = row.node if row and row.node else "-"
        shown.add_row(encode.name, encode.codec, f"{kbits[encode.name]:,.0f}", phase, node, score)
    return shown
