"""`make fuzz`: scores thousands of mutated clips. Each has to end in a score or a refusal, and leave nothing behind.

The same seed gives the same clips: --only repeats one of them, and --save writes it to a file. A crash of the decoder
is a refusal; it is printed, so that somebody can look at it.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.support.fuzzing import ALLOWED, Fuzzer, Outcome
from tests.support.intact_clips import not_covered
from tests.support.leftovers import MachineState, watched_folders

PROGRESS_EVERY = 100  # clips


async def fuzz(arguments: argparse.Namespace, folder: Path, log: Callable[[str], None]) -> list[Outcome]:
    """The outcomes that are not allowed. Raises AssertionError if anything on this machine has changed."""
    clips, mutated = folder / "intact", folder / "mutated"
    clips.mkdir()
    mutated.mkdir()
    fuzzer = Fuzzer(clips, arguments.seed)
    log(f"seed {arguments.seed}: {len(fuzzer.intact)} intact clips")
    if arguments.only is not None and arguments.save is not None:
        arguments.save.write_bytes(fuzzer.mutated(arguments.only).content)
    with watched_folders(folder) as watched:
        if arguments.only is None:
            reports = await fuzzer.score_intact(arguments.parallel)
            log(f"not covered, since nothing here encodes it: {', '.join(not_covered(reports))}")
        before, kinds, failures = MachineState(*watched, clips), Counter[str](), list[Outcome]()
        numbers = range(arguments.clips) if arguments.only is None else [arguments.only]
        async for outcome in fuzzer.score_mutated(numbers, mutated, arguments.parallel):
            kinds[outcome.kind] += 1
            if outcome.kind not in ALLOWED:
                failures.append(outcome)
            if outcome.kind not in {"score", "refusal"} or arguments.only is not None:
                log(str(outcome))
            if kinds.total() % PROGRESS_EVERY == 0:
                log(f"{kinds.total()} clips: {_counts(kinds)}")
        await before.check()
    log(f"{kinds.total()} clips: {_counts(kinds)}")
    return failures


def _counts(kinds: Counter[str]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in kinds.most_common())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clips", type=int, default=2000)
    parser.add_argument("--only", type=int, help="score only the clip with this number")
    parser.add_argument("--save", type=Path, help="with --only: write the clip to this file")
    parser.add_argument("--parallel", type=int, default=4, help="scores at the same time (default: 4)")
    arguments = parser.parse_args()
    started = time.monotonic()

    def log(text: str) -> None:
        print(f"{time.monotonic() - started:6.0f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        try:
            failures = asyncio.run(fuzz(arguments, Path(folder), log))
        except AssertionError as error:
            sys.exit(f"seed {arguments.seed} failed: {error}")
    if failures:
        numbers = ", ".join(str(one.clip.number) for one in failures)
        sys.exit(f"seed {arguments.seed} failed with clips {numbers}; to repeat one:"
                 f' make fuzz ARGS="--seed {arguments.seed} --only {failures[0].clip.number}"')  # fmt: skip
    log("passed: nothing is left on this machine")


if __name__ == "__main__":
    main()
