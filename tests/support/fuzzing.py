"""Scores mutated clips with the real Scorer, several at once, and classifies the outcomes."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from tests.support.intact_clips import REFERENCE, make_intact_clips, source
from tests.support.mutations import mutate
from vmafx.scoring.errors import BadInput, EngineFailure, ScoringError
from vmafx.scoring.request import ClipLimits, ScoreOptions
from vmafx.scoring.result import Report
from vmafx.scoring.score import Scorer

# On an idle machine it takes 0.2 s to inspect a clip. After half of probe_seconds in CPU time it is refused.
LIMITS = ClipLimits(pixels=1 << 20, frames=1000, probe_seconds=60.0, frame_seconds=0.1, memory=1 << 30)
TIME_LIMIT = 300.0  # seconds for a score: more than the limits allow
DISTORTED = "h264.mp4"  # is compared with a mutated reference
REFERENCE_SHARE = 0.2  # of the mutated clips, that are used as the reference
CRASH = "crashed ffmpeg's libraries"
OPTIONS = (
    ScoreOptions(threads=1),
    ScoreOptions(threads=2, damaged=True, shortest=True, stretch=True),  # as much as possible is decoded and scored
    ScoreOptions(threads=1, damaged=True, shortest=True, stretch=True, conform=True),
)

Kind = Literal["score", "refusal", "crash of the decoder", "EngineFailure", "NodeFault", "no end", "other exception"]
ALLOWED: frozenset[Kind] = frozenset({"score", "refusal", "crash of the decoder"})


class MutatedClip(NamedTuple):
    number: int
    name: str  # of the intact clip
    mutation: str
    content: bytes
    is_reference: bool
    options: ScoreOptions


class Outcome(NamedTuple):
    clip: MutatedClip
    kind: Kind
    message: str

    def __str__(self) -> str:
        part = "reference" if self.clip.is_reference else "distorted"
        return (
            f"clip {self.clip.number} ({self.clip.name} as {part}: {self.clip.mutation}): {self.kind}: {self.message}"
        )


class Fuzzer:
    """The same seed gives the same mutated clips, by number."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.intact = make_intact_clips(folder)
        self._names, self._contents = list(self.intact), {name: one.read_bytes() for name, one in self.intact.items()}
        self._seed, self._scorer = seed, Scorer(limits=LIMITS)

    def mutated(self, number: int) -> MutatedClip:
        rng = random.Random(f"{self._seed}/{number}")
        name, other = self._names[number % len(self._names)], rng.choice(self._names)
        is_reference, options = rng.random() < REFERENCE_SHARE, rng.choice(OPTIONS)
        content, mutation = mutate(self._contents[name], self._contents[other], rng)
        return MutatedClip(number, name, mutation, content, is_reference, options)

    async def score_intact(self, parallel: int) -> list[Report]:
        """Every intact clip has a score; otherwise its mutations would test nothing."""
        room = asyncio.Semaphore(parallel)

        async def score(path: Path) -> Report:
            async with room:
                return await self._scorer.score(source(self.intact[REFERENCE]), source(path), OPTIONS[1])

        return list(await asyncio.gather(*map(score, self.intact.values())))

    async def score_mutated(self, numbers: Iterable[int], folder: Path, parallel: int) -> AsyncIterator[Outcome]:
        """Writes each clip to the folder while it is scored."""
        waiting, running = iter(numbers), set[asyncio.Task[Outcome]]()
        try:
            while True:
                while len(running) < parallel and (number := next(waiting, None)) is not None:
                    running.add(asyncio.create_task(self._score(self.mutated(number), folder)))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _score(self, clip: MutatedClip, folder: Path) -> Outcome:
        path = folder / f"{clip.number}{Path(clip.name).suffix}"
        path.write_bytes(clip.content)
        try:
            async with asyncio.timeout(TIME_LIMIT):
                pair = (
                    (source(path), source(self.intact[DISTORTED]))
                    if clip.is_reference
                    else (source(self.intact[REFERENCE]), source(path))
                )
                report = await self._scorer.score(*pair, clip.options)
                return Outcome(clip, "score", f"{report.result.score:.2f}")
        except ScoringError as error:
            return Outcome(clip, _kind(error), str(error))
        except TimeoutError:
            return Outcome(clip, "no end", f"not within {TIME_LIMIT:.0f} s")
        except Exception as error:  # noqa: BLE001 - is what the test looks for
            return Outcome(clip, "other exception", repr(error))
        finally:
            path.unlink()


def _kind(error: ScoringError) -> Kind:
    if isinstance(error, BadInput):
        return "crash of the decoder" if CRASH in str(error) else "refusal"
    return "EngineFailure" if isinstance(error, EngineFailure) else "NodeFault"
