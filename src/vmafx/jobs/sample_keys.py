"""Which attempts yield samples, and the tokens to push them with.

The key that signs the tokens is in a Secret of each namespace with trainings; the operator creates it with the first
training. The operator puts tokens into Pods, and the controller gives them to agents and verifies them.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from vmafx.api.meta import MetaView
from vmafx.api.rbac import Permission
from vmafx.api.training import DataSource
from vmafx.auth.signing_key import ensure_key, read_key
from vmafx.clock import loop_time
from vmafx.jobs.sample_token import AttemptClaims, sign, unverified_claims, verify
from vmafx.kube import Client, ObjectKey
from vmafx.kube.errors import KubeError
from vmafx.logs import log

SAMPLES_SECRET = "vmafx-samples"  # noqa: S105 - its name
READ_SAMPLE_KEY = Permission(group="", resources=("secrets",), verbs=("get",), names=(SAMPLES_SECRET,))
CREATE_SAMPLE_KEY = Permission(group="", resources=("secrets",), verbs=("create",))  # RBAC cannot restrict it by name
KEY_TTL = 60.0  # seconds that a key is used without reading it again
MIN_READ_INTERVAL = 5.0  # seconds between two reads because a token was rejected, or a Secret missing
SIGN_TIMEOUT = 1.0  # seconds that a job may wait for its token
OUTAGE_INTERVAL = 10.0  # seconds without further tries after a failed read


class _TrainingSpec(Protocol):
    @property
    def dataSource(self) -> DataSource | None: ...  # noqa: N802 - as in the API


class SelectsNodes(Protocol):
    """A view of a VmafxModelTraining with the fields that select nodes."""

    @property
    def metadata(self) -> MetaView: ...
    @property
    def spec(self) -> _TrainingSpec: ...


T = TypeVar("T", bound=SelectsNodes)


def matching_trainings(trainings: Iterable[T], labels: Mapping[str, str]) -> list[T]:
    """Those of the trainings that use the scores of a VmafxNode with these labels."""
    return [
        training
        for training in trainings
        if training.metadata.deletionTimestamp is None
        and (training.spec.dataSource is None or training.spec.dataSource.nodeSelector.items() <= labels.items())
    ]


class _ReadKey(NamedTuple):
    key: bytes | None
    read_at: float


class SampleKeys:
    """The keys of the namespaces, read when they are needed."""

    def __init__(self, client: Client, clock: Callable[[], float] = loop_time) -> None:
        self._client, self._clock = client, clock
        self._read: dict[str, _ReadKey] = {}
        self._failed_at: dict[str, float] = {}  # by namespace

    async def ensure(self, namespace: str) -> bytes:
        """The key of a namespace, which is created if there is none. Raises KubeError."""
        return self._remember(namespace, await ensure_key(self._client, _secret(namespace)))

    async def get(self, namespace: str, max_age: float = KEY_TTL) -> bytes | None:
        """The key of a namespace as it was at most `max_age` seconds ago; None if it has none. Raises KubeError."""
        found = self._read.get(namespace)
        if found is not None:
            age = self._clock() - found.read_at
            if age < (max_age if found.key is not None else min(max_age, MIN_READ_INTERVAL)):
                return found.key
        key = await read_key(self._client, _secret(namespace))
        if key is None:
            self._read[namespace] = _ReadKey(None, self._clock())
            return None
        return self._remember(namespace, key)

    async def try_sign(self, claims: AttemptClaims) -> str | None:
        """A token for these claims; None if there is no key, or it cannot be read soon: a job does not wait for it."""
        namespace, now = claims.namespace, self._clock()
        failed_at = self._failed_at.get(namespace)
        if failed_at is not None and now - failed_at < OUTAGE_INTERVAL:
            return None
        try:
            async with asyncio.timeout(SIGN_TIMEOUT):
                key = await self.get(namespace)
        except (KubeError, TimeoutError) as error:
            write = log.warn if failed_at is None else log.debug
            write("cannot read the key of samples; jobs yield none", namespace=namespace, error=str(error) or "timeout")
            self._failed_at[namespace] = now
            return None
        if self._failed_at.pop(namespace, None) is not None:
            log.info("the key of samples can be read again", namespace=namespace)
        return sign(key, claims) if key is not None else None

    async def verify(self, token: str) -> AttemptClaims | None:
        """The claims of a token that was signed with the key of its namespace; else None. Raises KubeError.

        The key may have been replaced, so it is read again if the token does not match.
        """
        claims = unverified_claims(token, AttemptClaims)
        if claims is None:
            return None
        for max_age in (KEY_TTL, MIN_READ_INTERVAL):
            key = await self.get(claims.namespace, max_age)
            if key is not None and verify(key, token, AttemptClaims) is not None:
                return claims
        return None

    def _remember(self, namespace: str, key: bytes) -> bytes:
        self._read[namespace] = _ReadKey(key, self._clock())
        return key


def _secret(namespace: str) -> ObjectKey:
    return ObjectKey(namespace, SAMPLES_SECRET)
