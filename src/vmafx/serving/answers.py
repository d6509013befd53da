"""KnownAnswers: answers to requests with the clips and options of an earlier one, found without reading a clip."""

from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from vmafx.scoring.errors import ScoringError
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.serving.clips import ContentIdentity, identify
from vmafx.serving.models import ServedModels
from vmafx.serving.request import ScoreRequest
from vmafx.serving.results import ResultStore
from vmafx.tasks import in_thread

MAX_ANSWERS = 4096  # each has about 8 kB


class _Answer(msgspec.Struct, frozen=True):
    key: str  # of the result
    body: bytes


class KnownAnswers:
    """Answers in memory. An answer is known for as long as its result is kept on disk."""

    def __init__(self, policy: MediaPolicy, models: ServedModels, results: ResultStore) -> None:
        self._policy, self._models, self._results = policy, models, results
        self._answers: OrderedDict[object, _Answer] = OrderedDict()

    async def find(self, spec: ScoreRequest, digests: Mapping[str, str], names: Mapping[str, str]) -> bytes | None:
        """`digests` and `names` are those of uploaded clips; the names are part of the answer."""
        return await in_thread(self._find, spec, digests, names) if self._answers else None

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


def _question(
    identities: tuple[ContentIdentity, ...], spec: ScoreRequest, names: Mapping[str, str]
) -> tuple[tuple[ContentIdentity, ...], bytes]:
    """All that affects an answer."""
    return identities, msgspec.json.encode((msgspec.structs.replace(spec, deadlineSeconds=None), names))
