"""KnownAnswers: answers to requests with the clips and options of an earlier one, found without reading a clip."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from vmafx.scoring.errors import ScoringError
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.serving.clips import ContentIdentity, identify
from vmafx.serving.models import ServedModels
from vmafx.serving.request import ScoreRequest
from vmafx.serving.results import ResultStore
from vmafx.tasks import in_thread

T = TypeVar("T")
MAX_ANSWERS = 4096  # each has about 8 kB
MAX_SEARCHES = 2  # at the same time, each in a thread


class _Answer(msgspec.Struct, frozen=True):
    key: str  # of the result
    body: bytes


class _Search(NamedTuple):
    """A request whose answer is searched."""

    spec: ScoreRequest
    digests: Mapping[str, str]
    names: Mapping[str, str]
    found: "asyncio.Future[bytes | None]"


class KnownAnswers:
    """Answers in memory. An answer is known for as long as its result is kept on disk.

    The clips of every request are looked at after it has arrived, since they may have changed. That is done in a
    thread, because a disk may be slow, and for all requests that wait at once: threads that take turns with the event
    loop for each request cost more than all the rest of an answer.
    """

    def __init__(self, policy: MediaPolicy, models: ServedModels, results: ResultStore) -> None:
        self._policy, self._models, self._results = policy, models, results
        self._answers: OrderedDict[object, _Answer] = OrderedDict()
        self._waiting: list[_Search] = []
        self._searching: set[asyncio.Task[None]] = set()

    async def find(self, spec: ScoreRequest, digests: Mapping[str, str], names: Mapping[str, str]) -> bytes | None:
        """`digests` and `names` are those of uploaded clips; the names are part of the answer."""
        if not self._answers:
            return None
        search = _Search(spec, digests, names, asyncio.get_running_loop().create_future())
        self._waiting.append(search)
        if len(self._searching) < MAX_SEARCHES:
            task = asyncio.create_task(self._search())
            self._searching.add(task)
            task.add_done_callback(self._searching.discard)
        return await search.found

    async def _search(self) -> None:
        """Search for all that wait, until nobody does."""
        while self._waiting:
            searches, self._waiting = self._waiting, []
            waiting = [search for search in searches if not search.found.done()]  # a client may have left
            try:
                answers = await in_thread(self._find_all, waiting)
            except Exception as error:  # noqa: BLE001 - each request handles it
                for search in waiting:
                    _unless_done(search.found, search.found.set_exception, error)
            else:
                for search, answer in zip(waiting, answers, strict=True):
                    _unless_done(search.found, search.found.set_result, answer)

    def _find_all(self, searches: Sequence[_Search]) -> list[bytes | None]:
        return [self._find(search.spec, search.digests, search.names) for search in searches]

    def _find(self, spec: ScoreRequest, digests: Mapping[str, str], names: Mapping[str, str]) -> bytes | None:
        try:
            identities = identify(spec, digests, self._policy)
        except ScoringError:
            return None  # the job says why
        answer = self._answers.get(_question(identities, spec, names)) if identities is not None else None
        return answer.body if answer is not None and self._results.touch(answer.key) else None

    def remember(
        self,
        identities: tuple[ContentIdentity, ...],
        spec: ScoreRequest,
        names: Mapping[str, str],
        key: str,
        body: bytes,
    ) -> None:
        if not self._models.is_fixed(spec.model):
            return
        self._answers[_question(identities, spec, names)] = _Answer(key, body)
        if len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)


def _unless_done(future: "asyncio.Future[bytes | None]", settle: Callable[[T], None], value: T) -> None:
    if not future.done():
        settle(value)


def _question(
    identities: tuple[ContentIdentity, ...], spec: ScoreRequest, names: Mapping[str, str]
) -> tuple[tuple[ContentIdentity, ...], bytes]:
    """All that affects an answer."""
    return identities, msgspec.json.encode((msgspec.structs.replace(spec, deadlineSeconds=None), names))
