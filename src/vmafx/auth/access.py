"""Authentication and authorization of callers, and the log of rejected calls."""

import hashlib
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from vmafx.auth.cache import ExpiringCache, FailureLimiter, FailureQueue, QueueFull, SingleFlight
from vmafx.auth.credentials import CallerCredentials, host_of
from vmafx.auth.reviews import AUDIENCE, AccessReviewer, ResourceAction
from vmafx.clock import loop_time
from vmafx.http.errors import Code, StatusError
from vmafx.kube import Client
from vmafx.kube.core import UserInfo
from vmafx.logs import log
from vmafx.text import one_line

ALLOWED_TTL = 60.0  # seconds; a revoked token may stay accepted for this long
DENIED_TTL = 20.0  # seconds; shorter, since a role may have just been bound
PROVEN_TTL = 3600.0  # seconds for which a once valid token, and its user, are known
MAX_CALLERS = 8192
MAX_DECISIONS = 32768
MAX_FAILURES = 20  # invalid tokens per address before the reviews of unknown ones wait; denials per caller
TOKEN_FAILURE_DECAY = 0.25  # seconds after which one invalid token no longer counts: the interval of reviews that wait
DENIAL_DECAY = 3.0  # seconds after which one denial no longer counts
MAX_QUEUE_WAIT = 3.0  # seconds; a heartbeat must not take longer than its timeout, which fails /healthz
MAX_QUEUED = 12  # reviews that wait per address: as many as get a turn in time
MAX_QUEUED_TOTAL = 1024  # reviews that wait, for all addresses
MAX_TOKEN = 8192  # characters; a service account token has about a thousand
MAX_NAME = 253  # characters; the limit of Kubernetes

REJECTED_CODES: frozenset[Code] = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"})
REJECTION_LOG_INTERVAL = 60.0  # seconds between log lines for the same caller, address and code
MAX_REMEMBERED = 4096  # combinations of caller, address and code

AUTHENTICATED = "system:authenticated"
C = TypeVar("C", bound=msgspec.Struct)
_JWT = re.compile(r"[\w-]+\.([\w-]+)\.[\w-]+", re.ASCII)


class Caller(NamedTuple):
    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = {}


class AccessControl(Protocol):
    def known_user(self, credentials: CallerCredentials) -> str:
        """Return the user, without a review, if its credentials were valid within the last hour; empty otherwise."""
        ...

    async def authenticate(self, credentials: CallerCredentials) -> Caller:
        """Return the caller; raise StatusError if the credentials are missing or invalid."""
        ...

    async def authorize(
        self,
        credentials: CallerCredentials,
        verb: str,
        resource: str,
        namespace: str,
        name: str = "",
        subresource: str = "",
    ) -> Caller:
        """Authenticate the caller and return it; raise StatusError if it lacks the permission."""
        ...


class InsecureAccess:
    """Allows every caller everything: for development and isolated networks."""

    def known_user(self, credentials: CallerCredentials) -> str:
        return ""

    async def authenticate(self, credentials: CallerCredentials) -> Caller:
        return Caller("system:anonymous", groups=("system:unauthenticated",))

    async def authorize(
        self,
        credentials: CallerCredentials,
        verb: str,
        resource: str,
        namespace: str,
        name: str = "",
        subresource: str = "",
    ) -> Caller:
        return await self.authenticate(credentials)


class _Claims(msgspec.Struct):
    """Claims of a token whose signature has not been verified."""

    exp: float = float("inf")


class _ServiceAccount(msgspec.Struct, frozen=True):
    uid: str = ""


class _KubernetesClaims(msgspec.Struct, frozen=True):
    serviceaccount: _ServiceAccount = _ServiceAccount()


class _ClaimedUser(msgspec.Struct, frozen=True):
    """The user that a token claims to be of, not verified: it selects a queue, and is never trusted.

    Outsiders may guess the name of a service account, but not its uid.
    """

    iss: str = ""
    sub: str = ""
    kubernetes: _KubernetesClaims = msgspec.field(name="kubernetes.io", default=_KubernetesClaims())


class _Source(NamedTuple):
    """Where a token comes from: each source has a queue of its own.

    A session of an agent proves that it had a valid token before, maybe at another replica. For others, the source is
    the address, and the claimed user if that had a valid token recently.
    """

    host: str = ""
    user: _ClaimedUser | None = None
    agent: str = ""

    @property
    def is_known(self) -> bool:
        return self.user is not None or bool(self.agent)


class _Identity(NamedTuple):
    """An authenticated user; `key` is a hash of the credentials."""

    key: bytes
    user: UserInfo


class TokenAccess:
    """Authenticates by TokenReview or client certificate, authorizes by SubjectAccessReview, and caches the results.

    `now` is the clock for cache entries, `wall` the one for token expiry.
    """

    def __init__(
        self, client: Client, now: Callable[[], float] = loop_time, wall: Callable[[], float] = time.time
    ) -> None:
        self._reviewer, self._now, self._wall = AccessReviewer(client), now, wall
        # Separate caches, so that a flood of invalid tokens evicts only other invalid tokens.
        self._users: ExpiringCache[bytes, UserInfo] = ExpiringCache(MAX_CALLERS, now)
        self._invalid_tokens: ExpiringCache[bytes, bool] = ExpiringCache(MAX_CALLERS, now)
        self._proven_tokens: ExpiringCache[bytes, str] = ExpiringCache(MAX_CALLERS, now)  # with their users
        self._proven_users: ExpiringCache[_ClaimedUser, bool] = ExpiringCache(MAX_CALLERS, now)
        self._decisions: ExpiringCache[tuple[bytes, ResourceAction], bool] = ExpiringCache(MAX_DECISIONS, now)
        self._token_reviews: SingleFlight[bytes, UserInfo | None] = SingleFlight()
        self._access_reviews: SingleFlight[tuple[bytes, ResourceAction], bool] = SingleFlight()
        # On the loop's clock, since reviews wait for it. Separate queues, so that unknown users cannot fill both.
        self._token_failures: FailureLimiter[_Source] = FailureLimiter(
            MAX_FAILURES, TOKEN_FAILURE_DECAY, loop_time, MAX_CALLERS
        )
        self._unknown_queue, self._known_queue = [
            FailureQueue(self._token_failures, MAX_QUEUE_WAIT, MAX_QUEUED, MAX_QUEUED_TOTAL) for _ in range(2)
        ]
        self._denials: FailureLimiter[bytes] = FailureLimiter(MAX_FAILURES, DENIAL_DECAY, now, MAX_CALLERS)

    async def authenticate(self, credentials: CallerCredentials) -> Caller:
        return _caller((await self._identify(credentials)).user)

    async def authorize(
        self,
        credentials: CallerCredentials,
        verb: str,
        resource: str,
        namespace: str,
        name: str = "",
        subresource: str = "",
    ) -> Caller:
        action = ResourceAction(verb, resource, namespace, name, subresource)
        if max(map(len, action)) > MAX_NAME:
            raise StatusError("INVALID_ARGUMENT", f"a name or namespace has more than {MAX_NAME} characters")
        identity = await self._identify(credentials)
        if not await self._is_allowed(identity, action):
            user = identity.user.username
            log.debug("permission denied", user=user, action=action, peer=credentials.peer)
            raise StatusError("PERMISSION_DENIED", f"{user!r} may not {action}", caller=user)
        return _caller(identity.user)

    async def _identify(self, credentials: CallerCredentials) -> _Identity:
        """A token takes precedence over a certificate: an invalid token is rejected even beside a valid certificate."""
        if credentials.token:
            return await self._identify_token(credentials)
        if credentials.user:
            user = UserInfo(username=credentials.user, groups=(*credentials.groups, AUTHENTICATED))
            return _Identity(_hash(msgspec.json.encode(user)), user)
        raise StatusError(
            "UNAUTHENTICATED", f"no token: send one for the audience {AUDIENCE} as `authorization: Bearer …`"
        )

    def known_user(self, credentials: CallerCredentials) -> str:
        if not credentials.token:
            return credentials.user
        return self._proven_tokens.get(_token_key(credentials.token)) or ""

    async def _identify_token(self, credentials: CallerCredentials) -> _Identity:
        if len(credentials.token) > MAX_TOKEN:
            raise _invalid_token()
        key = _token_key(credentials.token)
        user = self._users.get(key)
        if user is None:
            user = await self._review_token(credentials, key)
        return _Identity(key, user)

    def _source(self, credentials: CallerCredentials, claimed: _ClaimedUser | None) -> _Source:
        if credentials.agent:
            return _Source(agent=credentials.agent)
        is_proven = claimed is not None and self._proven_users.get(claimed)
        return _Source(host_of(credentials.peer), claimed if is_proven else None)

    async def _review_token(self, credentials: CallerCredentials, key: bytes) -> UserInfo:
        token = credentials.token
        claims, claimed = _decode(token, _Claims), _decode(token, _ClaimedUser)
        if claims is None or self._invalid_tokens.get(key):
            raise _invalid_token()
        source = self._source(credentials, claimed)

        async def review() -> UserInfo | None:
            reviewed_at = self._now()
            user = await self._reviewer.review_token(token)
            if user is None:
                log.debug("token rejected", peer=credentials.peer)
                self._token_failures.record(source)
                self._invalid_tokens.put(key, True, reviewed_at + DENIED_TTL)
            else:
                self._proven_tokens.put(key, user.username, reviewed_at + PROVEN_TTL)
                if claimed is not None:
                    self._proven_users.put(claimed, True, reviewed_at + PROVEN_TTL)
                self._users.put(key, user, reviewed_at + min(ALLOWED_TTL, claims.exp - self._wall()))
            return user

        async def review_in_turn() -> UserInfo | None:
            if self._proven_tokens.get(key):
                async with self._reviewer.limit_concurrency(known=True):
                    return await review()
            return await self._review_unproven(source, review)

        user = await self._token_reviews.do(key, review_in_turn)
        if user is None:
            raise _invalid_token()
        return user

    async def _review_unproven(
        self, source: _Source, review: Callable[[], Awaitable[UserInfo | None]]
    ) -> UserInfo | None:
        """Review a token that has not been valid yet: at once, or in turn after many invalid ones from its source."""
        known = source.is_known
        if not self._token_failures.is_limited(source):
            async with self._reviewer.limit_concurrency(known=known):
                if not self._token_failures.is_limited(source):  # more may have failed during the wait
                    return await review()
        queue = self._known_queue if known else self._unknown_queue
        try:
            async with queue.turn(source), self._reviewer.limit_concurrency(known=known):
                return await review()
        except QueueFull:
            raise StatusError(
                "RESOURCE_EXHAUSTED", "too many invalid tokens from where this one comes from; try again later"
            ) from None

    async def _is_allowed(self, identity: _Identity, action: ResourceAction) -> bool:
        key = (identity.key, action)
        allowed = self._decisions.get(key)
        if allowed is not None:
            return allowed

        async def review() -> bool:
            async with self._reviewer.limit_concurrency(known=True):
                if self._denials.is_limited(identity.key):
                    raise StatusError(
                        "RESOURCE_EXHAUSTED",
                        "too many denied requests; try again later",
                        caller=identity.user.username,
                    )
                reviewed_at = self._now()
                allowed = await self._reviewer.review_access(identity.user, action)
                if not allowed:
                    self._denials.record(identity.key)
                self._decisions.put(key, allowed, reviewed_at + (ALLOWED_TTL if allowed else DENIED_TTL))
            return allowed

        return await self._access_reviews.do(key, review)


def _invalid_token() -> StatusError:
    """The same text for every cause, so that a caller learns nothing about tokens of others."""
    how = f"kubectl create token SERVICE-ACCOUNT --audience {AUDIENCE}"
    return StatusError(
        "UNAUTHENTICATED", f"the token is malformed, expired, revoked or for another audience; see `{how}`"
    )


def _decode(token: str, claims: type[C]) -> C | None:
    """Decode claims without verification; None if this is not a JWT that has them, which needs no review."""
    parts = _JWT.fullmatch(token)
    if parts is None:
        return None
    try:
        return msgspec.json.decode(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), type=claims)
    except (ValueError, RecursionError):
        return None


def _token_key(token: str) -> bytes:
    return _hash(token.encode(errors="replace"))


def _hash(credentials: bytes) -> bytes:
    return hashlib.sha256(credentials).digest()


def _caller(user: UserInfo) -> Caller:
    return Caller(user.username, user.uid, user.groups, user.extra)


class RejectionLog:
    """Logs rejected calls, at most once a minute per caller, address and code, and never the token."""

    def __init__(self, now: Callable[[], float] = loop_time) -> None:
        self._now = now
        self._logged: ExpiringCache[tuple[str, str, Code], bool] = ExpiringCache(MAX_REMEMBERED, now)

    @contextmanager
    def log_rejection(self, call: str, credentials: CallerCredentials) -> Iterator[None]:
        """Log the call if the body of the `with` rejects it, and pass the error on."""
        try:
            yield
        except StatusError as error:
            if error.code in REJECTED_CODES:
                self._log(call, credentials, error)
            raise

    def _log(self, call: str, credentials: CallerCredentials, error: StatusError) -> None:
        caller, peer = error.caller or credentials.user or "unknown", host_of(credentials.peer)
        if self._logged.get((caller, peer, error.code)):
            return
        self._logged.put((caller, peer, error.code), True, self._now() + REJECTION_LOG_INTERVAL)
        log.warn(
            "call rejected", caller=one_line(caller), peer=one_line(peer), call=call,
            reason=f"{error.code}: {one_line(error.message)}",
        )  # fmt: skip
