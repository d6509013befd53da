"""`vmafx demo --serve`: the scoring server and its page on this machine, with two clips to try it."""

import shlex
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from vmafx.demo.clips import ENCODES, REFERENCE, SECONDS, SIZE, EncodeProcess
from vmafx.demo.progress import DemoError, StepPrinter, short_path
from vmafx.demo.roles import RoleProcesses, answers
from vmafx.devcluster.cluster import free_port

CLIPS = "clips"  # in the output folder
ENCODE = ENCODES[0]  # whose worst frames are easy to see
CHECK_INTERVAL = 0.5  # seconds


def run(output: Path, console: Console | None = None) -> None:
    """Serve until Ctrl-C. Only the clips remain afterwards."""
    steps = StepPrinter(console or Console())
    clips = output / CLIPS
    try:
        clips.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DemoError(f"cannot write {output}: {error.strerror}; choose another folder with --output") from error
    with _running_server(clips, steps) as (server, url):
        for line in next_steps(clips, url):
            steps.print(line)
        try:
            while True:
                server.check()
                time.sleep(CHECK_INTERVAL)
        except KeyboardInterrupt:
            steps.print("Stopping the server")


@contextmanager
def _running_server(clips: Path, steps: StepPrinter) -> Iterator[tuple[RoleProcesses, str]]:
    """The server and its URL. It ends with the context, and its jobs and results are deleted."""
    with ExitStack() as cleanup:
        folder = Path(
            cleanup.enter_context(tempfile.TemporaryDirectory(prefix="vmafx-demo-", ignore_cleanup_errors=True))
        )
        server = RoleProcesses(folder)
        cleanup.callback(server.stop)
        encoding = EncodeProcess(clips, [ENCODE])
        cleanup.callback(encoding.stop)
        with steps.running(f"Encoding a reference clip ({SIZE}, {SECONDS} s) at a low bitrate"):
            encoding.wait()
        address = f"127.0.0.1:{free_port()}"
        with steps.running("Starting the scoring server: vmafx serve"):
            server.start(
                "serve", "--http-address", address, "--grpc-address", "0", "--data", str(folder / "data"),
                "--grace", "0",
                VMAFX_MEDIA_ROOTS=str(clips),
            )  # fmt: skip
            server.wait_until(lambda: answers(f"http://{address}/readyz"), "the server did not become ready", "serve")
        yield server, f"http://{address}"


def next_steps(clips: Path, url: str) -> list[str]:
    """What to do with the server: the page for people, and a request that scores the clips where they are."""
    parts = {"reference": clips / REFERENCE, "distorted": clips / ENCODE.file}
    forms = " ".join(f"-F {shlex.quote(f'{part}={path}')}" for part, path in parts.items())
    return [
        "",
        f"Open {url}/ in a browser, and drop these two clips there:",
        *(f"  {short_path(path)}" for path in parts.values()),
        "",
        "Or send a request:",
        f"  curl {url}/v1/score {forms}",
        "",
        "The server keeps running. Press Ctrl-C to stop it.",
    ]
