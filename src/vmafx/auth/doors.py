"""Who may come in.

A caller shows a token or a client certificate. The API server says whose token it is and what they may do, so there are
no accounts here: service accounts, roles and bindings are all. Its answers hold for a minute at most; a token is never
kept, only its hash.
"""

import hashlib
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from vmafx.auth.credentials import Presented, host_of
from vmafx.auth.recent import Recent, Strikes, Together
from vmafx.auth.reviews import AUDIENCE, Action, Reviews
from vmafx.http.errors import Refused
from vmafx.kube import Client
from vmafx.kube.core import User
from vmafx.logs import log
from vmafx.times import loop_time

ADMITTED_FOR = 60.0  # seconds that an answer holds; so long may somebody go on whose token was revoked
PROVEN_FOR = 3600.0  # seconds after which a token that was good is like any other
REFUSED_FOR = 20.0  # shorter: they may be waiting for a role that was just bound
CALLERS_MOST = 8192
QUESTIONS_MOST = 32768
STRIKES_MOST = 20  # refusals of one peer, or of one caller, before new questions of theirs go unasked
FORGIVEN_EVERY = 3.0  # seconds
TOKEN_MOST = 8192  # characters; service account tokens have about a thousand
NAME_MOST = 253  # as long as names get in Kubernetes

AUTHENTICATED = "system:authenticated"
_JWT = re.compile(r"[\w-]+\.([\w-]+)\.[\w-]+", re.ASCII)


class Caller(NamedTuple):
    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = {}


class Doors(Protocol):
    async def who(self, presented: Presented) -> Caller:
        """Who it is; Refused if nobody knows."""
        ...

    async def admit(
        self, presented: Presented, verb: str, resource: str, namespace: str, name: str = "", subresource: str = ""
    ) -> Caller:
        """Who it is, if they may; Refused if not."""
        ...


class InsecureDoors:
    """Everybody may do everything: for development, and for networks where nobody else is."""

    async def who(self, presented: Presented) -> Caller:
        return Caller("system:anonymous", groups=("system:unauthenticated",))

    async def admit(
        self, presented: Presented, verb: str, resource: str, namespace: str, name: str = "", subresource: str = ""
    ) -> Caller:
        return await self.who(presented)


class _Claims(msgspec.Struct):
    """Of a token that nobody has verified yet."""

    exp: float = float("inf")


class _Known(NamedTuple):
    """Somebody who showed who they are; `key` stands for what they showed."""

    key: bytes
    user: User


class TokenDoors:
    """Asks the API server, and remembers what it said for a while.

    `now` is what answers age by, `wall` what tokens expire by.
    """

    def __init__(
        self, client: Client, now: Callable[[], float] = loop_time, wall: Callable[[], float] = time.time
    ) -> None:
        self._reviews, self._now, self._wall = Reviews(client), now, wall
        # Apart: whoever makes up tokens pushes out what is known of others who did, and of nobody else.
        self._users: Recent[bytes, User] = Recent(CALLERS_MOST, now)
        self._strangers: Recent[bytes, bool] = Recent(CALLERS_MOST, now)
        self._proven: Recent[bytes, bool] = Recent(CALLERS_MOST, now)  # good a while ago
        self._allowed: Recent[tuple[bytes, Action], bool] = Recent(QUESTIONS_MOST, now)
        self._identifying: Together[bytes, User | None] = Together()
        self._allowing: Together[tuple[bytes, Action], bool] = Together()
        self._bad_tokens: Strikes[str] = Strikes(STRIKES_MOST, FORGIVEN_EVERY, now, CALLERS_MOST)
        self._denials: Strikes[bytes] = Strikes(STRIKES_MOST, FORGIVEN_EVERY, now, CALLERS_MOST)

    async def who(self, presented: Presented) -> Caller:
        return _caller((await self._identify(presented)).user)

    async def admit(
        self, presented: Presented, verb: str, resource: str, namespace: str, name: str = "", subresource: str = ""
    ) -> Caller:
        action = Action(verb, resource, namespace, name, subresource)
        if max(map(len, action)) > NAME_MOST:
            raise Refused("INVALID_ARGUMENT", f"a name or namespace has more than {NAME_MOST} characters")
        known = await self._identify(presented)
        if not await self._may(known, action):
            user = known.user.username
            log.debug("denied", user=user, action=action, peer=presented.peer)
            raise Refused("PERMISSION_DENIED", f"{user!r} may not {action}", caller=user)
        return _caller(known.user)

    async def _identify(self, presented: Presented) -> _Known:
        """A token counts before a certificate: it was sent on purpose, and one that is bad is not made good by it."""
        if presented.token:
            return await self._bearer(presented.token, presented.peer)
        if presented.user:
            user = User(username=presented.user, groups=(*presented.groups, AUTHENTICATED))
            return _Known(_hash(msgspec.json.encode(user)), user)
        raise Refused("UNAUTHENTICATED", f"no token: send one for the audience {AUDIENCE} as `authorization: Bearer …`")

    async def _bearer(self, token: str, peer: str) -> _Known:
        if len(token) > TOKEN_MOST:
            raise _no_token()
        key = _hash(token.encode(errors="replace"))
        user = self._users.get(key)
        if user is None:
            user = await self._stranger(token, key, host_of(peer))
        return _Known(key, user)

    async def _stranger(self, token: str, key: bytes, host: str) -> User:
        claims = _claims(token)
        if claims is None or self._strangers.get(key):
            raise _no_token()

        async def review() -> User | None:
            async with self._reviews.turn():
                # Only now: whoever waited may have been refused a hundred times since.
                # Others behind the same address may be bad for as long as they like: who was good is asked after.
                if not self._proven.get(key) and self._bad_tokens.out(host):
                    raise Refused("RESOURCE_EXHAUSTED", "too many bad tokens from your address; try again later")
                asked = self._now()
                user = await self._reviews.token(token)
                if user is None:
                    log.debug("a token is nobody's", peer=host)
                    self._bad_tokens.strike(host)
                    self._strangers.put(key, True, asked + REFUSED_FOR)
                else:
                    self._proven.put(key, True, asked + PROVEN_FOR)
                    self._users.put(key, user, asked + min(ADMITTED_FOR, claims.exp - self._wall()))
            return user

        user = await self._identifying.ask(key, review)
        if user is None:
            raise _no_token()
        return user

    async def _may(self, known: _Known, action: Action) -> bool:
        question = (known.key, action)
        allowed = self._allowed.get(question)
        if allowed is not None:
            return allowed

        async def review() -> bool:
            async with self._reviews.turn():
                if self._denials.out(known.key):
                    raise Refused(
                        "RESOURCE_EXHAUSTED", "you were denied too often; try again later", caller=known.user.username
                    )
                asked = self._now()
                allowed = await self._reviews.access(known.user, action)
                if not allowed:
                    self._denials.strike(known.key)
                self._allowed.put(question, allowed, asked + (ADMITTED_FOR if allowed else REFUSED_FOR))
            return allowed

        return await self._allowing.ask(question, review)


def _no_token() -> Refused:
    """The same for whatever is wrong with it: nobody learns anything about tokens that are not theirs."""
    how = f"kubectl create token SERVICE-ACCOUNT --audience {AUDIENCE}"
    return Refused("UNAUTHENTICATED", f"the token is malformed, expired, revoked or for another audience; see `{how}`")


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


def _caller(user: User) -> Caller:
    return Caller(user.username, user.uid, user.groups, user.extra)
