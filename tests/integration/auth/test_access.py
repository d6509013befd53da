"""Authentication and authorization with real tokens, certificate subjects and roles, on a real API server."""

import asyncio
import io
import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import deque
from collections.abc import AsyncIterator, Iterator
from types import FunctionType, ModuleType
from typing import NamedTuple

import pytest

from tests.conftest import Kubectl
from tests.support.proxy import FaultyProxy, Refuse, Stall
from tests.support.tokens import ACCOUNTS, create_account, resigned, service_account_token
from tests.support.waiting import eventually
from vmafx import logs
from vmafx.auth import access, reviews
from vmafx.auth.access import Caller, InsecureAccess, TokenAccess
from vmafx.auth.credentials import CallerCredentials
from vmafx.auth.reviews import AUDIENCE
from vmafx.devcluster import DevCluster
from vmafx.http.errors import StatusError
from vmafx.kube import Client, ObjectKey
from vmafx.kube.credentials import token_expiry


class Clock:
    """A monotonic clock that tests advance."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


class Harness(NamedTuple):
    access: TokenAccess
    proxy: FaultyProxy
    clock: Clock
    namespace: str
    token: str  # of an agent that may only patch the status of the node `own-node`

    def review_count(self) -> int:
        return len(self.proxy.seen)

    async def authorize(self, credentials: CallerCredentials, name: str = "own-node", verb: str = "patch") -> Caller:
        return await self.access.authorize(credentials, verb, "vmafxnodes", self.namespace, name, "status")

    async def rejection_code(self, credentials: CallerCredentials, name: str = "own-node", verb: str = "patch") -> str:
        with pytest.raises(StatusError) as rejected:
            await self.authorize(credentials, name, verb)
        assert len(credentials.token) < 8 or credentials.token not in str(rejected.value)
        return rejected.value.code


@pytest.fixture
async def harness(client: Client, namespace: str, kubectl: Kubectl) -> AsyncIterator[Harness]:
    await create_account(client, ObjectKey(namespace, "agent"))
    token = await service_account_token(client, ObjectKey(namespace, "agent"), AUDIENCE)
    role = ["--verb=patch", "--resource=vmafxnodes.vmafx.dev/status", "--resource-name=own-node"]
    assert kubectl("create", "role", "agent", *role).returncode == 0
    subjects = [f"--serviceaccount={namespace}:agent", "--group=video"]
    assert kubectl("create", "rolebinding", "agent", "--role=agent", *subjects).returncode == 0
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        clock = Clock()
        made = Harness(TokenAccess(through, clock), proxy, clock, namespace, token)

        async def bound() -> bool:
            clock.at += access.ALLOWED_TTL
            try:
                await made.authorize(CallerCredentials(token))
            except StatusError:
                return False
            return True

        await eventually(bound, "the server has seen the binding")
        clock.at += access.ALLOWED_TTL * 2
        proxy.seen.clear()
        yield made


def invalid_token(number: int, **claims: object) -> str:
    """A well-formed JWT that only the API server can recognize as invalid."""
    parts = (b'{"alg":"ES256"}', json.dumps({"n": number, **claims}).encode(), b"signature")
    return ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


async def test_a_valid_token_authenticates_its_service_account(harness: Harness) -> None:
    caller = await harness.authorize(CallerCredentials(harness.token))
    assert caller.user == f"system:serviceaccount:{harness.namespace}:agent"
    assert {"system:authenticated", "system:serviceaccounts"} <= set(caller.groups)
    assert caller.uid
    assert await harness.access.authenticate(CallerCredentials(harness.token)) == caller


async def test_reviews_are_cached_for_a_minute(harness: Harness) -> None:
    for _ in range(3):
        await harness.authorize(CallerCredentials(harness.token))
    assert harness.review_count() == 2
    harness.clock.at += 59
    await harness.authorize(CallerCredentials(harness.token))
    assert harness.review_count() == 2
    harness.clock.at += 1
    await harness.authorize(CallerCredentials(harness.token))
    assert harness.review_count() == 4


async def test_concurrent_calls_share_their_reviews(harness: Harness) -> None:
    credentials = CallerCredentials(harness.token)
    first = asyncio.create_task(harness.authorize(credentials))  # starts the review, and is cancelled before its end
    await asyncio.sleep(0)
    others = [asyncio.create_task(harness.authorize(credentials)) for _ in range(50)]
    await asyncio.sleep(0)
    first.cancel()
    assert len({caller.uid for caller in await asyncio.gather(*others)}) == 1
    assert harness.review_count() == 2


async def test_a_token_for_another_audience_is_rejected(harness: Harness, client: Client) -> None:
    key = ObjectKey(harness.namespace, "agent")
    for audience in ("", "vault", "vmafx-controller2"):
        token = await service_account_token(client, key, audience)
        assert await harness.rejection_code(CallerCredentials(token)) == "UNAUTHENTICATED"


async def test_an_expired_or_forged_token_is_rejected(harness: Harness, cluster: DevCluster) -> None:
    signing, now = cluster.folder / "pki/service-account.key", int(time.time())
    valid = resigned(harness.token, signing, iat=now - 7200, nbf=now - 7200, exp=now + 3600)
    await harness.authorize(CallerCredentials(valid))  # so the next one is rejected only for its expiry
    expired = resigned(harness.token, signing, iat=now - 7200, nbf=now - 7200, exp=now - 3600)
    assert await harness.rejection_code(CallerCredentials(expired)) == "UNAUTHENTICATED"
    forged = valid[:-8] + "AAAAAAAA"
    assert await harness.rejection_code(CallerCredentials(forged)) == "UNAUTHENTICATED"


async def test_a_cached_token_expires_with_the_token(harness: Harness) -> None:
    expires = token_expiry(harness.token)
    assert expires is not None
    harness.access._wall = lambda: expires.timestamp() - 10
    await harness.authorize(CallerCredentials(harness.token))
    harness.clock.at += 9
    await harness.authorize(CallerCredentials(harness.token))
    assert harness.review_count() == 2
    harness.clock.at += 3
    await harness.authorize(CallerCredentials(harness.token))
    assert harness.review_count() == 3  # one more TokenReview; the decision is still cached


async def test_a_revoked_token_is_rejected_within_a_minute(harness: Harness, client: Client) -> None:
    await harness.authorize(CallerCredentials(harness.token))
    await client.delete(ACCOUNTS, ObjectKey(harness.namespace, "agent"))
    await harness.authorize(CallerCredentials(harness.token))  # still cached

    async def is_rejected() -> bool:
        harness.clock.at += 60
        try:
            await harness.authorize(CallerCredentials(harness.token))
        except StatusError as error:
            return error.code == "UNAUTHENTICATED"
        return False

    await eventually(is_rejected, "the server has seen that the account was deleted")


async def test_a_role_limits_a_caller_by_name_and_verb(harness: Harness) -> None:
    credentials = CallerCredentials(harness.token)
    await harness.authorize(credentials, "own-node")
    assert await harness.rejection_code(credentials, "other-node") == "PERMISSION_DENIED"
    assert await harness.rejection_code(credentials, "") == "PERMISSION_DENIED"
    assert await harness.rejection_code(credentials, "own-node", "delete") == "PERMISSION_DENIED"
    with pytest.raises(StatusError, match=r"may not create vmafxjobs in namespace 'default'$"):
        await harness.access.authorize(credentials, "create", "vmafxjobs", "default")
    with pytest.raises(StatusError, match=r"may not watch vmafxjobs in all namespaces$"):
        await harness.access.authorize(credentials, "watch", "vmafxjobs", "")
    with pytest.raises(StatusError, match="more than 253 characters"):
        await harness.authorize(credentials, "x" * 254)


async def test_a_denial_is_cached_for_less_than_a_minute(harness: Harness, kubectl: Kubectl) -> None:
    credentials = CallerCredentials(harness.token)
    for _ in range(3):
        assert await harness.rejection_code(credentials, "other-node") == "PERMISSION_DENIED"
    assert harness.review_count() == 2
    role = ["--verb=patch", "--resource=vmafxnodes.vmafx.dev/status", "--resource-name=other-node"]
    kubectl("create", "role", "more", *role)
    kubectl("create", "rolebinding", "more", "--role=more", f"--serviceaccount={harness.namespace}:agent")

    async def allowed() -> bool:
        harness.clock.at += access.DENIED_TTL
        try:
            await harness.authorize(credentials, "other-node")
        except StatusError:
            return False
        return True

    await eventually(allowed, "the server has seen the new binding")


async def test_a_client_certificate_needs_no_token_review(harness: Harness) -> None:
    caller = await harness.authorize(CallerCredentials(user="alice", groups=("video",)))
    assert caller == Caller("alice", "", ("video", "system:authenticated"))
    assert harness.review_count() == 1  # the SubjectAccessReview
    assert await harness.rejection_code(CallerCredentials(user="alice", groups=("audio",))) == "PERMISSION_DENIED"
    assert await harness.rejection_code(CallerCredentials(user="video")) == "PERMISSION_DENIED"
    # A valid certificate does not make up for an invalid token.
    assert await harness.rejection_code(CallerCredentials(invalid_token(0), "alice", ("video",))) == "UNAUTHENTICATED"


async def test_a_call_without_credentials_is_told_which_token_to_send(harness: Harness) -> None:
    with pytest.raises(StatusError, match="audience vmafx-controller"):
        await harness.authorize(CallerCredentials())
    assert harness.review_count() == 0


@pytest.mark.parametrize(
    "token",
    ["x", "a.b.c", "a.b", "a.e30.c.d", "a..c", ".e30.c", "a.e30.", "a.e30.\n", "a.e30.ü", "\udc80", "a.W10.c",
     "a.bnVsbA.c", "a.eyJleHAiOiAieCJ9.c", "a." + "Wy" * 2000 + ".c", f"a.{'e' * 9000}.c", "x" * 1_000_000],
)  # fmt: skip
async def test_a_malformed_token_is_rejected_without_a_review(harness: Harness, token: str) -> None:
    assert await harness.rejection_code(CallerCredentials(token)) == "UNAUTHENTICATED"
    assert harness.review_count() == 0


class Flood(NamedTuple):
    """Invalid tokens from one address, 192.0.2.1."""

    harness: Harness

    async def send(self, number: int, **claims: object) -> str:
        token = invalid_token(number, **claims)
        return await self.harness.rejection_code(CallerCredentials(token, peer=f"ipv4:192.0.2.1:{number}"))

    async def send_all(self, first: int, last: int, **claims: object) -> list[str]:
        return await asyncio.gather(*(self.send(number, **claims) for number in range(first, last)))


@pytest.fixture
async def flood(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> Flood:
    """The address has sent as many invalid tokens as make the next ones wait."""
    monkeypatch.setattr(reviews, "MAX_WAIT", 60.0)  # so that a slow server rejects no call
    flood = Flood(harness)
    codes = await flood.send_all(0, 1000)
    assert set(codes) == {"UNAUTHENTICATED", "RESOURCE_EXHAUSTED"}
    return flood


async def test_a_flood_of_invalid_tokens_does_not_reach_the_api_server(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviews, "MAX_WAIT", 60.0)  # so that a slow server rejects no call
    monkeypatch.setattr(access, "TOKEN_FAILURE_DECAY", 1000.0)
    monkeypatch.setattr(access, "MAX_QUEUE_WAIT", 0.1)
    harness = harness._replace(access=TokenAccess(harness.access._reviewer._client, harness.clock))
    flood = Flood(harness)
    assert set(await flood.send_all(0, 1000)) == {"UNAUTHENTICATED", "RESOURCE_EXHAUSTED"}
    reviewed = harness.review_count()
    assert access.MAX_FAILURES <= reviewed <= access.MAX_FAILURES + reviews.MAX_UNKNOWN
    assert set(await flood.send_all(1000, 1100)) == {"RESOURCE_EXHAUSTED"}
    assert harness.review_count() == reviewed
    await harness.authorize(CallerCredentials(harness.token, peer="192.0.2.2"))  # valid, from elsewhere


async def test_a_flood_of_invalid_tokens_does_not_lock_out_known_users_of_the_same_address(
    harness: Harness, client: Client, flood: Flood
) -> None:
    """The fixture `harness` has used the agent's token from elsewhere: a proxy may be the address of everybody."""
    here = "192.0.2.1"
    flooding = asyncio.create_task(flood.send_all(1000, 2000))
    await asyncio.sleep(0)
    await harness.authorize(CallerCredentials(harness.token, peer=here))
    harness.clock.at += access.ALLOWED_TTL  # it is reviewed again
    await harness.authorize(CallerCredentials(harness.token, peer=here))
    rotated = await service_account_token(client, ObjectKey(harness.namespace, "agent"), AUDIENCE)
    await harness.authorize(CallerCredentials(rotated, peer=here))
    assert "RESOURCE_EXHAUSTED" in await flooding


async def test_a_new_user_behind_a_flood_of_its_address_waits_for_its_turn(
    harness: Harness, client: Client, flood: Flood
) -> None:
    await create_account(client, ObjectKey(harness.namespace, "new"))
    token = await service_account_token(client, ObjectKey(harness.namespace, "new"), AUDIENCE)
    caller = await harness.access.authenticate(CallerCredentials(token, peer="192.0.2.1"))
    assert caller.user == f"system:serviceaccount:{harness.namespace}:new"


async def test_a_session_lets_its_caller_pass_a_flood_also_after_a_restart(
    harness: Harness, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new process knows neither tokens nor users; the service has verified the session."""
    monkeypatch.setattr(reviews, "MAX_WAIT", 60.0)
    monkeypatch.setattr(access, "TOKEN_FAILURE_DECAY", 1000.0)
    monkeypatch.setattr(access, "MAX_QUEUE_WAIT", 0.1)
    harness = harness._replace(access=TokenAccess(harness.access._reviewer._client, harness.clock))
    await Flood(harness).send_all(0, 100)
    here = CallerCredentials(harness.token, peer="192.0.2.1")
    assert await harness.rejection_code(here) == "RESOURCE_EXHAUSTED"
    known = here._replace(agent="a")
    await harness.authorize(known)
    rotated = await service_account_token(client, ObjectKey(harness.namespace, "agent"), AUDIENCE)
    await harness.authorize(known._replace(token=rotated))


async def test_invalid_tokens_with_a_session_are_limited_and_slow_down_no_other_session(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviews, "MAX_WAIT", 60.0)
    monkeypatch.setattr(access, "TOKEN_FAILURE_DECAY", 1000.0)
    monkeypatch.setattr(access, "MAX_QUEUE_WAIT", 0.1)
    harness = harness._replace(access=TokenAccess(harness.access._reviewer._client, harness.clock))
    codes = [await harness.rejection_code(CallerCredentials(invalid_token(n), agent="a")) for n in range(40)]
    assert codes == ["UNAUTHENTICATED"] * access.MAX_FAILURES + ["RESOURCE_EXHAUSTED"] * (40 - access.MAX_FAILURES)
    assert harness.review_count() == access.MAX_FAILURES
    await harness.authorize(CallerCredentials(harness.token, agent="b"))


async def test_a_flood_in_the_name_of_a_user_needs_the_uid_of_its_account_to_slow_it_down(
    harness: Harness, client: Client, flood: Flood
) -> None:
    rotated = await service_account_token(client, ObjectKey(harness.namespace, "agent"), AUDIENCE)
    claims = json.loads(urlsafe_b64decode(rotated.split(".")[1] + "=="))
    named = {"iss": claims["iss"], "sub": claims["sub"]}
    assert set(await flood.send_all(1000, 1100, **named)) >= {"RESOURCE_EXHAUSTED"}
    before = harness.review_count()
    await harness.access.authenticate(CallerCredentials(rotated, peer="192.0.2.1"))
    assert harness.review_count() == before + 1


async def test_the_same_invalid_token_is_reviewed_once(harness: Harness) -> None:
    for _ in range(100):
        assert await harness.rejection_code(CallerCredentials(invalid_token(0))) == "UNAUTHENTICATED"
    assert harness.review_count() == 1


async def test_a_caller_with_too_many_denials_is_limited(harness: Harness) -> None:
    credentials = CallerCredentials(harness.token)
    codes = [await harness.rejection_code(credentials, f"n-{number}") for number in range(100)]
    assert codes == ["PERMISSION_DENIED"] * access.MAX_FAILURES + ["RESOURCE_EXHAUSTED"] * (100 - access.MAX_FAILURES)
    assert harness.review_count() == 1 + access.MAX_FAILURES
    await harness.authorize(CallerCredentials(user="alice", groups=("video",)))  # another caller


async def test_concurrent_reviews_are_limited(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "MAX_WAIT", 0.3)
    monkeypatch.setattr(reviews, "REVIEW_TIMEOUT", 3.0)
    harness.proxy.faults.extend(Stall() for _ in range(100))

    async def send(number: int) -> str:
        return await harness.rejection_code(CallerCredentials(invalid_token(number), peer=str(number)))

    codes = await asyncio.gather(*(send(number) for number in range(40)))
    assert sorted(codes) == ["RESOURCE_EXHAUSTED"] * (40 - reviews.MAX_UNKNOWN) + ["UNAVAILABLE"] * reviews.MAX_UNKNOWN
    assert harness.review_count() == reviews.MAX_UNKNOWN
    harness.proxy.faults.clear()
    monkeypatch.undo()
    await harness.authorize(CallerCredentials(harness.token))  # the limit was released after each review


async def test_known_callers_wait_longer_for_their_turn(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviews, "MAX_WAIT", 0.1)
    monkeypatch.setattr(reviews, "REVIEW_TIMEOUT", 1.0)
    credentials = CallerCredentials(harness.token)
    await harness.authorize(credentials)
    before = harness.review_count()
    harness.proxy.faults.extend(Stall() for _ in range(reviews.MAX_CONCURRENT))
    stalled = [
        asyncio.create_task(harness.rejection_code(credentials, f"n-{number}"))
        for number in range(reviews.MAX_CONCURRENT)
    ]
    await eventually(lambda: harness.review_count() == before + reviews.MAX_CONCURRENT, "all reviews are taken")
    assert await harness.rejection_code(credentials, "another") == "PERMISSION_DENIED"
    assert set(await asyncio.gather(*stalled)) == {"UNAVAILABLE"}


async def test_reviews_of_unknown_tokens_leave_room_for_known_ones(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviews, "REVIEW_TIMEOUT", 3.0)
    harness.proxy.faults.extend(Stall() for _ in range(reviews.MAX_UNKNOWN))
    unknown = [
        asyncio.create_task(harness.rejection_code(CallerCredentials(invalid_token(number), peer=str(number))))
        for number in range(reviews.MAX_UNKNOWN)
    ]
    await eventually(lambda: harness.review_count() == reviews.MAX_UNKNOWN, "all reviews of unknown tokens are taken")
    await harness.authorize(CallerCredentials(harness.token))
    assert set(await asyncio.gather(*unknown)) == {"UNAVAILABLE"}


async def test_a_user_is_known_after_its_review(harness: Harness, client: Client) -> None:
    token = await service_account_token(client, ObjectKey(harness.namespace, "agent"), AUDIENCE)
    credentials, user = CallerCredentials(token), f"system:serviceaccount:{harness.namespace}:agent"
    assert harness.access.known_user(credentials) == ""
    await harness.authorize(credentials)
    assert harness.access.known_user(credentials) == user
    harness.clock.at += access.ALLOWED_TTL  # it is reviewed again, but not as a stranger
    assert harness.access.known_user(credentials) == user
    harness.clock.at += access.PROVEN_TTL
    assert harness.access.known_user(credentials) == ""
    assert harness.access.known_user(CallerCredentials(user="alice")) == "alice"
    assert harness.access.known_user(CallerCredentials(invalid_token(0), user="alice")) == ""
    assert InsecureAccess().known_user(CallerCredentials("whatever")) == ""


async def test_cached_decisions_hold_while_the_api_server_is_unavailable(harness: Harness, client: Client) -> None:
    other = CallerCredentials(await service_account_token(client, ObjectKey(harness.namespace, "agent"), AUDIENCE))
    await harness.authorize(CallerCredentials(harness.token))
    harness.proxy.faults.extend(Refuse(500) for _ in range(3))
    await harness.authorize(CallerCredentials(harness.token))
    assert await harness.rejection_code(other) == "UNAVAILABLE"
    assert await harness.rejection_code(CallerCredentials(harness.token), "other-node") == "UNAVAILABLE"
    harness.clock.at += access.ALLOWED_TTL
    assert await harness.rejection_code(CallerCredentials(harness.token)) == "UNAVAILABLE"
    await harness.authorize(other)  # an unavailable API server does not count as a failure of the caller
    await harness.authorize(CallerCredentials(harness.token))


async def test_no_token_is_ever_logged(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(logs._sink, "out", out)
    monkeypatch.setattr(logs._sink, "rank", 0)
    await harness.rejection_code(CallerCredentials(invalid_token(1), peer="192.0.2.1"))
    await harness.rejection_code(CallerCredentials(harness.token), "other-node")
    harness.proxy.faults.append(Refuse(500, body=f"what is {invalid_token(2)}?"))
    await harness.rejection_code(CallerCredentials(invalid_token(2)))
    lines = out.getvalue()
    assert "token rejected" in lines
    assert "permission denied" in lines
    assert "access review failed" in lines
    assert not [
        token for token in (harness.token, invalid_token(1), invalid_token(2)) if token.rpartition(".")[0] in lines
    ]


def texts_in(value: object, seen: dict[int, object]) -> Iterator[str]:
    """All texts in a value and in what it refers to; not in its client, which has credentials of its own."""
    if id(value) in seen or isinstance(value, Client | type | ModuleType | FunctionType):
        return
    seen[id(value)] = value  # kept, so that no other object gets its id
    if isinstance(value, str | bytes):
        yield value if isinstance(value, str) else value.decode("latin-1")
        return
    parts: list[object] = [getattr(value, name) for name in _attributes(value)]
    if isinstance(value, dict):
        parts += [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset | deque):
        parts += value
    for part in parts:
        yield from texts_in(part, seen)


def _attributes(value: object) -> Iterator[str]:
    yield from vars(value) if hasattr(value, "__dict__") else ()
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else slots
        yield from (name for name in names if not name.startswith("__") and hasattr(value, name))
    yield from getattr(value, "__struct_fields__", ())


async def test_no_token_is_stored(harness: Harness) -> None:
    await harness.authorize(CallerCredentials(harness.token))
    await harness.rejection_code(CallerCredentials(invalid_token(1), peer="192.0.2.1"))
    await harness.rejection_code(CallerCredentials(harness.token), "other-node")
    stored = "\n".join(texts_in(harness.access, {}))
    assert f"system:serviceaccount:{harness.namespace}" in stored
    assert "192.0.2.1" in stored  # of the queue for unknown tokens
    for token in (harness.token, invalid_token(1)):
        assert not [part for part in token.split(".")[1:] if part in stored]


async def test_insecure_access_allows_every_call() -> None:
    caller = await InsecureAccess().authorize(CallerCredentials("whatever"), "create", "vmafxjobs", "default")
    assert caller.user == "system:anonymous"
