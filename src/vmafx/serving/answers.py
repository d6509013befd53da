"""KnownAnswers: answers to requests with the clips and options of an earlier one, found without reading a clip."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from vmafx.clock import loop_time
from vmafx.scoring.errors import ScoringError
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.serving.clips import PARTS, ContentIdentity, SeenFile, identify
from vmafx.serving.models import ServedModels
from vmafx.serving.request import ScoreRequest
from vmafx.serving.results import ResultStore
from vmafx.tasks import in_thread

T = TypeVar("T")
MAX_ANSWERS = 4096  # each has about 8 kB
MAX_SEARCHES = 2  # at the same time, each in a thread
REPEATABLE_SECONDS = 5.0  # after a search, until the next one finds what else may have changed
MAX_REPEATABLE, MAX_REPEATABLE_BODY = 1024, 8 << 10  # requests that are remembered, and bytes of each


class _Answer(msgspec.Struct, frozen=True):
    key: str  # of the result
    body: bytes


class _Search(NamedTuple):
    """A request whose answer is searched."""

    spec: ScoreRequest
    digests: Mapping[str, str]
    names: Mapping[str, str]
    found: "asyncio.Future[_Found | None]"


class _Found(NamedTuple):
    """An answer. It is the same for as long as the files are, which are all that could change."""

    answer: bytes
    files: tuple[SeenFile, ...]


_NOTHING = _Found(b"", ()), float("-inf")


class KnownAnswers:
    """Answers in memory. An answer is known for as long as its result is kept on disk.

    The clips of every request are looked at after it has arrived, since they may have changed. Where the kernel answers
    from memory, `repeat` does that at once. Otherwise `find` does it in a thread, because a disk may be slow, and for
    all requests that wait at once: threads that take turns with the event loop for each request cost more than all the
    rest of an answer.
    """

    def __init__(
        self,
        policy: MediaPolicy,
        models: ServedModels,
        results: ResultStore,
        now: Callable[[], float] = loop_time,
    ) -> None:
        self._policy, self._models, self._results, self._now = policy, models, results, now
        self._answers: OrderedDict[object, _Answer] = OrderedDict()
        self._waiting: list[_Search] = []
        self._searching: set[asyncio.Task[None]] = set()
        self._repeatable: OrderedDict[bytes, tuple[_Found, float]] = OrderedDict()  # with the end of its time
        self._unchanged: set[SeenFile] = set()  # those looked at in this turn of the event loop

    def repeat(self, body: bytes) -> bytes | None:
        """The answer to a request whose body is that of one which `find` has just answered, if no clip has changed."""
        found, until = self._repeatable.get(body, _NOTHING)
        if self._now() > until:
            return None
        for file in found.files:
            if file not in self._unchanged and not self._look_at(file):
                return None
        return found.answer

    def _look_at(self, file: SeenFile) -> bool:
        """Whether it is unchanged, for all requests that have arrived: later ones come in a later turn of the loop."""
        if not file.is_unchanged():
            return False
        if not self._unchanged:
            asyncio.get_running_loop().call_soon(self._unchanged.clear)
        self._unchanged.add(file)
        return True

    async def find(
        self, spec: ScoreRequest, digests: Mapping[str, str], names: Mapping[str, str], body: bytes = b""
    ) -> bytes | None:
        """`digests` and `names` are those of uploaded clips; the names are part of the answer.

        `body` is that of a request without uploaded clips, for `repeat`.
        """
        if not self._answers:
            return None
        found = await self._find_in_turn(spec, digests, names)
        if found is None:
            return None
        if 0 < len(body) <= MAX_REPEATABLE_BODY and len(found.files) == len(PARTS):
            self._repeatable[body] = (found, self._now() + REPEATABLE_SECONDS)
            self._repeatable.move_to_end(body)
            if len(self._repeatable) > MAX_REPEATABLE:
                self._repeatable.popitem(last=False)
        return found.answer

    async def _find_in_turn(
        self, spec: ScoreRequest, digests: Mapping[str, str], names: Mapping[str, str]
    ) -> _Found | None:
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

    def _find_all(self, searches: Sequence[_Search]) -> list[_Found | None]:
        return [self._find(search) for search in searches]

    def _find(self, search: _Search) -> _Found | None:
        try:
            clips = identify(search.spec, search.digests, self._policy)
        except ScoringError:
            return None  # the job says why
        if clips is None:
            return None
        spec = msgspec.structs.replace(search.spec, model=search.spec.model or self._models.default_name)
        answer = self._answers.get(_question(clips.identities, spec, search.names))
        return _Found(answer.body, clips.files) if answer is not None and self._results.touch(answer.key) else None

    def remember(
        self,
        identities: tuple[ContentIdentity, ...],
        spec: ScoreRequest,
        names: Mapping[str, str],
        key: str,
        body: bytes,
    ) -> None:
        """`spec` names its model."""
        if not self._models.is_fixed(spec.model):
            return
        self._answers[_question(identities, spec, names)] = _Answer(key, body)
        if len(self._answers) > MAX_ANSWERS:
            self._answers.popitem(last=False)


def _unless_done(future: "asyncio.Future[_Found | None]", settle: Callable[[T], None], value: T) -> None:
    if not future.done():
        settle(value)


def _question(
    identities: tuple[ContentIdentity, ...], spec: ScoreRequest, names: Mapping[str, str]
) -> tuple[tuple[ContentIdentity, ...], bytes]:
    """All that affects an answer."""
    return identities, msgspec.json.encode((msgspec.structs.replace(spec, deadlineSeconds=None), names))
