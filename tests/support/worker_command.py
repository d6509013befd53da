"""The worker as a Pod runs it: one variable in; a result file and an exit code out."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from vmafx.jobs.attempt import AttemptResult, AttemptSpec, decode_result
from vmafx.operator.job.pod import COMMAND

PROGRAMS = Path(sys.executable).parent  # as in an image: python3 with vmafx is the first in PATH
VMAFX = str(PROGRAMS / "vmafx")


class Worker:
    """Runs the command of a Pod with its environment."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.result_file = folder / "result"

    def start(
        self, attempt: AttemptSpec | str, *, command: Sequence[str] = COMMAND, **variables: str
    ) -> "subprocess.Popen[str]":
        spec = attempt if isinstance(attempt, str) else msgspec.json.encode(attempt).decode()
        environment = {
            "VMAFX_WORK": spec,
            "VMAFX_ANSWER_FILE": str(self.result_file),
            "PATH": f"{PROGRAMS}:{os.environ['PATH']}",
        }
        return subprocess.Popen(
            command,
            env=environment | variables,
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, attempt: AttemptSpec | str, **variables: str) -> tuple[int, AttemptResult, str]:
        with self.start(attempt, **variables) as process:
            _, log = process.communicate(timeout=120)
        attempt_id = attempt.id if isinstance(attempt, AttemptSpec) else ""
        result = decode_result(self.result_file.read_text(), attempt_id)
        assert result is not None, self.result_file.read_text()
        return process.returncode, result, log


def attempt(worker_clips: Path, distorted: str = "distorted.mp4", **fields: Any) -> AttemptSpec:
    return AttemptSpec(
        (worker_clips / "reference.mkv").as_uri(), (worker_clips / distorted).as_uri(), id="uid-0", **fields
    )
