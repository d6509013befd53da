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
CREATE_SAMPLE_KEY = (
    Permission(group="", resources=("secrets",), verbs=("create",)),  # RBAC cannot restrict it by name
    Permission(group="", resources=("secrets",), verbs=("patch",), names=(SAMPLES_SECRET,)),
)
KEY_TTL = 60.0  # seconds that a key is used without reading it again
MIN_READ_INTERVAL = 5.0  # seconds between two reads because a token was rejected, or a Secret missing
SIGN_TIMEOUT = 1.0  # seconds that a job may wait for its token
OUTAGE_INTERVAL = 5.0  # seconds without further reads after a failed one


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


class _FailedRead(NamedTuple):
    error: KubeError
    failed_at: float


class SampleKeys:
    """The keys of the namespaces, read when they are needed: of each namespace, one read at a time."""

    def __init__(self, client: Client, clock: Callable[[], float] = loop_time) -> None:
        self._client, self._clock = client, clock
        self._read: dict[str, _ReadKey] = {}  # by namespace, as the others
        self._failed: dict[str, _FailedRead] = {}
        self._reading: dict[str, asyncio.Task[bytes | None]] = {}
        self._signing_failed_at: dict[str, float] = {}

    async def ensure(self, namespace: str) -> bytes:
        """The key of a namespace, which is created if there is none. Raises KubeError."""
        return self._remember(namespace, await ensure_key(self._client, _secret(namespace)))

    async def get(self, namespace: str, max_age: float = KEY_TTL) -> bytes | None:
        """The key of a namespace as it was at most `max_age` seconds ago; None if it has none.

        Raises KubeError: for OUTAGE_INTERVAL, the same one again.
        """
        found = self._read.get(namespace)
        if found is not None:
            age = self._clock() - found.read_at
            if age < (max_age if found.key is not None else min(max_age, MIN_READ_INTERVAL)):
                return found.key
        failed = self._failed.get(namespace)
        if failed is not None and self._clock() - failed.failed_at < OUTAGE_INTERVAL:
            raise failed.error.with_traceback(None)  # else it grows with each raise
        reading = self._reading.get(namespace)
        if reading is None:
            reading = self._reading[namespace] = asyncio.create_task(self._read_key(namespace))
            reading.add_done_callback(lambda task: task.cancelled() or task.exception())  # all callers may have left
        return await asyncio.shield(reading)

    async def try_sign(self, claims: AttemptClaims) -> str | None:
        """A token for these claims; None if there is no key, or it cannot be read soon: a job does not wait for it."""
        namespace, now = claims.namespace, self._clock()
        failed_at = self._signing_failed_at.get(namespace)
        if failed_at is not None and now - failed_at < OUTAGE_INTERVAL:
            return None
        try:
            async with asyncio.timeout(SIGN_TIMEOUT):
                key = await self.get(namespace)
        except (KubeError, TimeoutError) as error:
            write = log.warn if failed_at is None else log.debug
            write(
                "cannot read the sample signing key; new attempts yield no samples",
                namespace=namespace,
                error=str(error) or "timeout",
            )
            self._signing_failed_at[namespace] = now
            return None
        if self._signing_failed_at.pop(namespace, None) is not None:
            log.info("sample signing key is readable again", namespace=namespace)
        return sign(key, claims) if key is not None else None

    async def verify(self, token: str) -> AttemptClaims | None:
        """The claims of a token that was signed with the key of its namespace and has not expired; else None.

        The key may have been replaced, so it is read again if the token does not match. Raises KubeError.
        """
        claims = unverified_claims(token, AttemptClaims)
        if claims is None:
            return None
        for max_age in (KEY_TTL, MIN_READ_INTERVAL):
            key = await self.get(claims.namespace, max_age)
            if key is not None and verify(key, token, AttemptClaims) is not None:
                return claims
        return None

    async def _read_key(self, namespace: str) -> bytes | None:
        try:
            key = await read_key(self._client, _secret(namespace))
        except KubeError as error:
            self._failed[namespace] = _FailedRead(error, self._clock())
            raise
        finally:
            del self._reading[namespace]
        if key is not None:
            return self._remember(namespace, key)
        self._failed.pop(namespace, None)
        self._read[namespace] = _ReadKey(None, self._clock())
        return None

    def _remember(self, namespace: str, key: bytes) -> bytes:
        self._failed.pop(namespace, None)
        self._read[namespace] = _ReadKey(key, self._clock())
        return key


def _secret(namespace: str) -> ObjectKey:
    return ObjectKey(namespace, SAMPLES_SECRET)
