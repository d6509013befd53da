"""How the worker is told what to do: by whoever starts it, in variables."""

from pathlib import Path
from typing import Annotated

from vmafx.jobs.work import WORK
from vmafx.settings import Setting, Settings


class WorkerSettings(Settings):
    """The variables of `vmafx worker`."""

    # fmt: off
    work: Annotated[str, Setting("What to score, as JSON; the operator or the agent writes it.", variable=WORK)]
    answer: Annotated[Path, Setting(
        "The file that the answer is written to.", default="/dev/termination-log",
        variable="VMAFX_ANSWER_FILE", parse=Path,
    )]
    progress: Annotated[str, Setting(
        "A file that gets a line of JSON about once a second, on how far the score is; the agent reads it.",
        variable="VMAFX_PROGRESS_FILE",
    )]
    # fmt: on
