"""Authentication and authorization of callers, with the rejections logged."""

import hashlib
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import msgspec

from vmafx.auth.cache import ExpiringCache, FailureLimiter, SingleFlight
from vmafx.auth.credentials import CallerCredentials, host_of
from vmafx.auth.reviews import AUDIENCE, AccessReviewer, ResourceAction
from vmafx.clock import loop_time
from vmafx.http.errors import CallRefused, Code
from vmafx.kube import Client
from vmafx.kube.core import UserInfo
from vmafx.logs import log
from vmafx.text import one_line

ALLOWED_TTL = 60.0  # seconds that an answer holds; so long may somebody go on whose token was revoked
IDENTITY_TTL = 3600.0  # seconds after which a token that was good is like any other
DENIED_TTL = 20.0  # shorter: they may be waiting for a role that was just bound
MAX_CALLERS = 8192
MAX_DECISIONS = 32768
MAX_FAILURES = 20  # refusals of one peer, or of one caller, before new questions of theirs go unasked
FAILURE_DECAY = 3.0  # seconds
MAX_TOKEN = 8192  # characters; service account tokens have about a thousand
MAX_NAME = 253  # as long as names get in Kubernetes

AUTHENTICATED = "system:authenticated"
_JWT = re.compile(r"[\w-]+\.([\w-]+)\.[\w-]+", re.ASCII)


class Caller(NamedTuple):
    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = {}


class AccessControl(Protocol):
    async def who(self, presented: CallerCredentials) -> Caller:
        """Who it is; Refused if nobody knows."""
        ...

    async def admit(
        self,
        presented: CallerCredentials,
        verb: str,
        resource: str,
        namespace: str,
        name: str = "",
        subresource: str = "",
    ) -> Caller:
        """Who it is, if they may; Refused if not."""
        ...


class InsecureAccess:
    """Everybody may do everything: for development, and for networks where nobody else is."""

    async def who(self, presented: CallerCredentials) -> Caller:
        return Caller("system:anonymous", groups=("system:unauthenticated",))

    async def admit(
        self,
        presented: CallerCredentials,
        verb: str,
        resource: str,
        namespace: str,
        name: str = "",
        subresource: str = "",
    ) -> Caller:
        return await self.who(presented)


class _Claims(msgspec.Struct):
    """Of a token that nobody has verified yet."""

    exp: float = float("inf")


class _Known(NamedTuple):
    """Somebody who showed who they are; `key` stands for what they showed."""

    key: bytes
    user: UserInfo


class TokenAccess:
    """Asks the API server, and remembers what it said for a while.

    `now` is what answers age by, `wall` what tokens expire by.
    """

    def __init__(
        self, client: Client, now: Callable[[], float] = loop_time, wall: Callable[[], float] = time.time
    ) -> None:
        self._reviews, self._now, self._wall = AccessReviewer(client), now, wall
        # Apart: whoever makes up tokens pushes out what is known of others who did, and of nobody else.
        self._users: ExpiringCache[bytes, UserInfo] = ExpiringCache(MAX_CALLERS, now)
        self._strangers: ExpiringCache[bytes, bool] = ExpiringCache(MAX_CALLERS, now)
        self._proven: ExpiringCache[bytes, bool] = ExpiringCache(MAX_CALLERS, now)  # good a while ago
        self._allowed: ExpiringCache[tuple[bytes, ResourceAction], bool] = ExpiringCache(MAX_DECISIONS, now)
        self._identifying: SingleFlight[bytes, UserInfo | None] = SingleFlight()
        self._allowing: SingleFlight[tuple[bytes, ResourceAction], bool] = SingleFlight()
        self._bad_tokens: FailureLimiter[str] = FailureLimiter(MAX_FAILURES, FAILURE_DECAY, now, MAX_CALLERS)
        self._denials: FailureLimiter[bytes] = FailureLimiter(MAX_FAILURES, FAILURE_DECAY, now, MAX_CALLERS)

    async def who(self, presented: CallerCredentials) -> Caller:
        return _caller((await self._identify(presented)).user)

    async def admit(
        self,
        presented: CallerCredentials,
        verb: str,
        resource: str,
        namespace: str,
        name: str = "",
        subresource: str = "",
    ) -> Caller:
        action = ResourceAction(verb, resource, namespace, name, subresource)
        if max(map(len, action)) > MAX_NAME:
            raise CallRefused("INVALID_ARGUMENT", f"a name or namespace has more than {MAX_NAME} characters")
        known = await self._identify(presented)
        if not await self._may(known, action):
            user = known.user.username
            log.debug("denied", user=user, action=action, peer=presented.peer)
            raise CallRefused("PERMISSION_DENIED", f"{user!r} may not {action}", caller=user)
        return _caller(known.user)

    async def _identify(self, presented: CallerCredentials) -> _Known:
        """A token counts before a certificate: it was sent on purpose, and one that is bad is not made good by it."""
        if presented.token:
            return await self._bearer(presented.token, presented.peer)
        if presented.user:
            user = UserInfo(username=presented.user, groups=(*presented.groups, AUTHENTICATED))
            return _Known(_hash(msgspec.json.encode(user)), user)
        raise CallRefused(
            "UNAUTHENTICATED", f"no token: send one for the audience {AUDIENCE} as `authorization: Bearer …`"
        )

    async def _bearer(self, token: str, peer: str) -> _Known:
        if len(token) > MAX_TOKEN:
            raise _no_token()
        key = _hash(token.encode(errors="replace"))
        user = self._users.get(key)
        if user is None:
            user = await self._stranger(token, key, host_of(peer))
        return _Known(key, user)

    async def _stranger(self, token: str, key: bytes, host: str) -> UserInfo:
        claims = _claims(token)
        if claims is None or self._strangers.get(key):
            raise _no_token()

        async def review() -> UserInfo | None:
            async with self._reviews.turn():
                # Only now: whoever waited may have been refused a hundred times since.
                # Others behind the same address may be bad for as long as they like: who was good is asked after.
                if not self._proven.get(key) and self._bad_tokens.out(host):
                    raise CallRefused("RESOURCE_EXHAUSTED", "too many bad tokens from your address; try again later")
                asked = self._now()
                user = await self._reviews.token(token)
                if user is None:
                    log.debug("a token is nobody's", peer=host)
                    self._bad_tokens.strike(host)
                    self._strangers.put(key, True, asked + DENIED_TTL)
                else:
                    self._proven.put(key, True, asked + IDENTITY_TTL)
                    self._users.put(key, user, asked + min(ALLOWED_TTL, claims.exp - self._wall()))
            return user

        user = await self._identifying.ask(key, review)
        if user is None:
            raise _no_token()
        return user

    async def _may(self, known: _Known, action: ResourceAction) -> bool:
        question = (known.key, action)
        allowed = self._allowed.get(question)
        if allowed is not None:
            return allowed

        async def review() -> bool:
            async with self._reviews.turn():
                if self._denials.out(known.key):
                    raise CallRefused(
                        "RESOURCE_EXHAUSTED", "you were denied too often; try again later", caller=known.user.username
                    )
                asked = self._now()
                allowed = await self._reviews.access(known.user, action)
                if not allowed:
                    self._denials.strike(known.key)
                self._allowed.put(question, allowed, asked + (ALLOWED_TTL if allowed else DENIED_TTL))
            return allowed

        return await self._allowing.ask(question, review)


def _no_token() -> CallRefused:
    """The same for whatever is wrong with it: nobody learns anything about tokens that are not theirs."""
    how = f"kubectl create token SERVICE-ACCOUNT --audience {AUDIENCE}"
    return CallRefused(
        "UNAUTHENTICATED", f"the token is malformed, expired, revoked or for another audience; see `{how}`"
    )


def _claims(token: str) -> _Claims | None:
    """None for what cannot be a token: that much is seen without asking anybody."""
    parts = _JWT.fullmatch(token)
    if parts is None:
        return None
    try:
        return msgspec.json.decode(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)), type=_Claims)
    except (ValueError, RecursionError):
        return None


def _hash(shown: bytes) -> bytes:
    return hashlib.sha256(shown).digest()


def _caller(user: UserInfo) -> Caller:
    return Caller(user.username, user.uid, user.groups, user.extra)


REJECTED_CODES: frozenset[Code] = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"})
REJECTION_LOG_INTERVAL = 60.0  # seconds, of one caller at one address, for one reason
MAX_REMEMBERED = 4096


class RejectionLog:
    """A line a minute for each caller, address and reason, however often they come. Never their tokens."""

    def __init__(self, now: Callable[[], float] = loop_time) -> None:
        self._now = now
        self._told: ExpiringCache[tuple[str, str, Code], bool] = ExpiringCache(MAX_REMEMBERED, now)

    @contextmanager
    def told(self, call: str, shown: CallerCredentials) -> Iterator[None]:
        try:
            yield
        except CallRefused as refused:
            if refused.code in REJECTED_CODES:
                self._tell(call, shown, refused)
            raise

    def _tell(self, call: str, shown: CallerCredentials, refused: CallRefused) -> None:
        caller, peer = refused.caller or shown.user or "unknown", host_of(shown.peer)
        if self._told.get((caller, peer, refused.code)):
            return
        self._told.put((caller, peer, refused.code), True, self._now() + REJECTION_LOG_INTERVAL)
        log.warn(
            "a caller is refused", caller=one_line(caller), peer=one_line(peer), call=call,
            why=f"{refused.code}: {one_line(refused.message)}",
        )  # fmt: skip
