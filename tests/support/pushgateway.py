"""Debian's Prometheus Pushgateway on a port of this machine.

`python -m tests.support.pushgateway` says before the tests if it is missing.
"""

import asyncio
import re
import shutil
import sys
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.support.waiting import eventually

PROGRAM = "prometheus-pushgateway"
MISSING = f"error: the Prometheus Pushgateway is missing; on Debian: apt-get install {PROGRAM}"


class Pushgateway:
    def __init__(self, url: str) -> None:
        self.url = url

    def figures(self) -> list[Sample]:
        """What was pushed by vmaf-tune."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:  # noqa: S310 - http
            families = text_string_to_metric_families(answer.read().decode())
            return [one for family in families for one in family.samples if one.name.startswith("vmaf_tune")]


@asynccontextmanager
async def running_pushgateway(folder: Path) -> AsyncIterator[Pushgateway]:
    """Stopped at the end of the block. It chooses a free port, and logs it."""
    log = folder / "pushgateway.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            PROGRAM, "--web.listen-address=127.0.0.1:0", "--log.level=debug", cwd=folder, stdout=output, stderr=output
        )
    try:
        await eventually(lambda: _port(log), "the Pushgateway listens")
        yield Pushgateway(f"http://127.0.0.1:{_port(log)}")
    finally:
        process.kill()
        await process.wait()


def _port(log: Path) -> str:
    found = re.search(r"address=127\.0\.0\.1:(\d+)", log.read_text())
    return found[1] if found and found[1] != "0" else ""


if __name__ == "__main__":
    sys.exit(None if shutil.which(PROGRAM) else MISSING)
