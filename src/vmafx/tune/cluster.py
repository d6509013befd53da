"""ClusterScoring: encodes scored by VmafxJobs, each while others are still being made.

An encode is uploaded, and a job scores it and writes its report beside it. Names follow from digests: a report that is
there is taken, and a job that an earlier run has left is waited for.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import FileIO
from typing import Self

import msgspec

from vmafx.api.job import VmafxJobSpec
from vmafx.api.meta import LocalSecretRef
from vmafx.api.scoring import ScoringOptions
from vmafx.fleet.submit import job_name_for, manifest, scheme_of
from vmafx.kube import Client
from vmafx.kube.resources import UntypedObject
from vmafx.scoring.batch import ClipFailed, ClipScored
from vmafx.scoring.engines.ffmpeg import BUILT_IN_MODELS
from vmafx.scoring.errors import BadInput, NodeFault, ScoringError
from vmafx.scoring.media.access import OpenedMedia, sha256
from vmafx.scoring.media.uri import display_name
from vmafx.scoring.models import open_model
from vmafx.scoring.probed import ProbedClip
from vmafx.scoring.request import ScoreOptions
from vmafx.scoring.result import Report
from vmafx.tune.cluster_jobs import KEY_ANNOTATION, ClusterJobs, JobState
from vmafx.tune.job_report import MAX_REPORT_BYTES, ExpectedReport, parse_report
from vmafx.tune.upload import UploadFolder
from vmafx.tune.work_folder import KeptEncode

CREATED_BY = {"vmafx.dev/created-by": "vmaf-tune"}
SOURCE_LABEL = "vmafx.dev/tune-source"  # the first 16 digits of the digest of the source
REVISION = 1  # increased when a change in vmafx changes what a job scores
KEEP_SECONDS = 24 * 3600  # a job stays so long after its end; its report stays until somebody deletes it
KEY_DIGITS = 40  # of the key, in the name of a job
PARALLEL_UPLOADS = 4
SHOW_INTERVAL, REPORT_POLL = 10.0, 2.0  # seconds
STATES = ("uploading", "waiting", "running", "scored", "failed")


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where jobs are created, and how many of them at the same time."""

    namespace: str
    secret: str = ""  # with the credentials of the clips
    jobs: int = 32
    job_timeout: float = 6 * 3600.0  # seconds, from the creation of a job to its end


class _Scoring:
    """How far the scoring of one encode is; `state` is one of STATES, or empty before that."""

    def __init__(self) -> None:
        self.state = JobState("")
        self.on_frames: Callable[[int], None] = lambda _: None


class ClusterScoring:
    """Scores encodes of one source. An async context manager, whose end stops the waiting, but no job."""

    def __init__(
        self,
        client: Client,
        folder: UploadFolder,
        source: ProbedClip,
        options: ScoreOptions,
        settings: ClusterSettings,
        on_state: Callable[[str], None],
    ) -> None:
        self._folder, self._source, self._options, self._settings = folder, source, options, settings
        self._on_state, self._jobs = on_state, ClusterJobs(client, folder, settings.job_timeout)
        self._slots, self._uploads = asyncio.Semaphore(settings.jobs), asyncio.Semaphore(PARALLEL_UPLOADS)
        self._encodes: dict[str, tuple[_Scoring, asyncio.Task[ClipScored | ClipFailed]]] = {}
        self._reference, self._model, self._model_identity = "", "", ""

    async def __aenter__(self) -> Self:
        self._showing = asyncio.create_task(self._show_regularly())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [self._showing, *(task for _, task in self._encodes.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def unfinished(self) -> int:
        """The number of jobs that have not ended."""
        return sum(one.state.name in {"waiting", "running"} for one, _ in self._encodes.values())

    @property
    def labels(self) -> dict[str, str]:
        """Of the jobs for this source."""
        return {**CREATED_BY, SOURCE_LABEL: self._source.digest[:16]}

    async def check(self) -> None:
        """Upload the source if the cluster needs that. Raises ScoringError if encodes could not be scored."""
        if self._reference:  # a ladder checks before each of its steps
            return
        check_options(self._options)
        await self._folder.check()
        self._model, self._model_identity = await self._find_model()
        visible, name = self._folder.visible(self._source.source.uri), f"source-{self._source.digest}"
        self._reference = visible or self._folder.named(name)
        longest = self._folder.named(f"{'0' * 64}-{'0' * 16}.json")
        await self._jobs.check(self._manifest(job_name_for("tune-check"), "", self._spec(longest, longest)))
        if visible is None:
            self._on_state("uploading the source")
            await self._folder.put(
                name, self._source.opened, lambda share: self._on_state(f"uploading the source: {share:.0%}")
            )
        self._on_state("")

    async def _find_model(self) -> tuple[str, str]:
        """The model as a job names it, and its identity, which changes with its content."""
        name = self._options.model
        async with open_model(name, self._folder.policy) as model:
            identity = model.identity
        if scheme_of(name) == "oci" or ("/" not in name and not name.endswith(".json")):
            return name, identity
        if (uri := self._folder.visible(name)) is None:
            raise BadInput(
                "model", f"the cluster does not have the file {name}; put it into the folder of --upload, or use a URI"
            )
        return uri, identity

    def begin(self, encode: KeptEncode) -> None:
        """Start to upload and score an encode, unless that was started before."""
        if encode.path.name not in self._encodes:
            one = _Scoring()
            self._encodes[encode.path.name] = one, asyncio.create_task(self._score(encode, one))

    async def score(
        self, encodes: Sequence[KeptEncode], on_scored: Callable[[int, int], None]
    ) -> list[ClipScored | ClipFailed]:
        """The outcome of each encode. `on_scored` gets a number and its frames."""
        waiting = []
        for number, encode in enumerate(encodes):
            self.begin(encode)
            one, task = self._encodes[encode.path.name]
            one.on_frames = partial(on_scored, number)
            one.on_frames(one.state.frames)
            waiting.append(task)
        return list(await asyncio.gather(*waiting))

    async def _score(self, encode: KeptEncode, one: _Scoring) -> ClipScored | ClipFailed:
        try:
            async with self._slots:
                report = await self._report(encode, one)
        except ScoringError as error:
            self._enter(one, JobState("failed"))
            return ClipFailed(error)
        self._enter(one, JobState("scored", frames=encode.facts.frames))
        return ClipScored(report)

    async def _report(self, encode: KeptEncode, one: _Scoring) -> Report:
        """The report of an encode: that of an earlier job, or of a new one. Raises ScoringError."""
        with _opened(encode) as media:
            digest = await sha256(media)
            key = self._key(digest)
            report_name = f"{digest}-{key[:16]}.json"
            if (report := await self._read(report_name, digest, encode)) is not None:
                return report
            async with self._uploads:
                self._enter(one, JobState("uploading"))
                distorted = await self._folder.put(f"{digest}{encode.path.suffix}", media)
        spec = self._spec(distorted, self._folder.named(report_name))
        job = self._manifest(f"tune-{key[:KEY_DIGITS]}", key, spec)
        try:
            await self._jobs.run(job, lambda state: self._enter(one, state))
        except NodeFault:  # also if there is a report already, which this machine did not see
            if (report := await self._read(report_name, digest, encode)) is None:
                raise
            return report
        return await self._delivered(report_name, digest, encode)

    async def _delivered(self, name: str, digest: str, encode: KeptEncode) -> Report:
        """The report of a job that has succeeded. Raises ScoringError."""
        clock = asyncio.get_running_loop().time
        until = clock() + self._folder.delay
        while (report := await self._read(name, digest, encode)) is None:
            if clock() >= until:
                raise NodeFault(
                    f"its job has ended, but this machine sees no report {self._folder.named(name)}: is that the same "
                    "folder on the nodes, or was the report deleted? Run the command again to score once more"
                )
            await asyncio.sleep(REPORT_POLL)
        return report

    async def _read(self, name: str, digest: str, encode: KeptEncode) -> Report | None:
        content = await self._folder.read(name, MAX_REPORT_BYTES)
        if content is None:
            return None
        expected = ExpectedReport(
            reference=f"sha256:{self._source.digest}",
            distorted=f"sha256:{digest}",
            model=shown_model(self._model),
            pooling=self._options.pooling,
            subsample=self._options.subsample,
            frames=encode.facts.frames,
        )
        return await asyncio.to_thread(parse_report, content, self._folder.named(name), expected)

    def _key(self, distorted: str) -> str:
        """The same key for the same clips, model, options and place of the report."""
        parts = {
            "reference": self._source.digest,
            "distorted": distorted,
            "model": self._model_identity,
            "backend": self._options.backend,
            "options": job_options(self._options),
            "upload": self._folder.uri,
            "revision": REVISION,
        }
        return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()

    def _spec(self, distorted: str, output: str) -> VmafxJobSpec:
        return VmafxJobSpec(
            self._reference,
            distorted,
            model=self._model,
            backend=self._options.backend,
            options=job_options(self._options),
            output=output,
            ttlSecondsAfterFinished=KEEP_SECONDS,
            credentialsSecretRef=LocalSecretRef(self._settings.secret) if self._settings.secret else None,
        )

    def _manifest(self, name: str, key: str, spec: VmafxJobSpec) -> UntypedObject:
        job = manifest(self._settings.namespace, name, self.labels, spec)
        job["metadata"]["annotations"] = {KEY_ANNOTATION: key}
        return job

    def _enter(self, one: _Scoring, state: JobState) -> None:
        one.state = state
        one.on_frames(state.frames)
        self._show()

    def _show(self) -> None:
        self._on_state(summary([one.state for one, _ in self._encodes.values()]))

    async def _show_regularly(self) -> None:
        """A display may have left out the last change."""
        while True:
            await asyncio.sleep(SHOW_INTERVAL)
            if self._encodes:
                self._show()


def summary(states: Sequence[JobState]) -> str:
    """How many encodes are in which state, and why the first one waits for which that is known."""
    counts = Counter(one.name for one in states)
    why = next((f" ({one.detail})" for one in states if one.detail), "")
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) + why


def shown_model(name: str) -> str:
    """A model as reports of the cluster name it; empty for one that each node finds in a folder of its own."""
    return display_name(name) if name in BUILT_IN_MODELS or scheme_of(name) else ""


def job_options(options: ScoreOptions) -> ScoringOptions | None:
    """The options of a job for these; None for the defaults. Threads are left to the machine that scores."""
    chosen = ScoringOptions(subsample=options.subsample, pooling=options.pooling, features=options.features)
    return chosen if chosen != ScoringOptions() else None


def check_options(options: ScoreOptions) -> None:
    """Raises BadInput for options that jobs do not have."""
    default = ScoreOptions()
    for name in ("size", "shortest", "conform", "stretch", "damaged"):
        if getattr(options, name) != getattr(default, name):
            raise BadInput("options", f"jobs of a cluster have no option {name!r}; score on this machine instead")


@contextmanager
def _opened(encode: KeptEncode) -> Iterator[OpenedMedia]:
    try:
        file = FileIO(encode.path)
    except OSError as error:
        raise NodeFault(f"the encode {encode.path} cannot be read: {error.strerror}") from error
    with file:
        yield OpenedMedia(file.fileno(), encode.facts.bytes, str(encode.path))
