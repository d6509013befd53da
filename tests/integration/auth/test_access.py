"""Who comes in, by real tokens, certificates' names and roles, as the real API server judges them."""

import asyncio
import io
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
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
from vmafx.http.errors import CallRefused
from vmafx.kube import Client, ObjectKey
from vmafx.kube.credentials import token_expiry


class Clock:
    """Monotonic seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


class Entrance(NamedTuple):
    doors: TokenAccess
    proxy: FaultyProxy
    clock: Clock
    namespace: str
    token: str  # of an agent that may patch the status of the node `ours`, and nothing else

    def reviews(self) -> int:
        return len(self.proxy.seen)

    async def admit(self, presented: CallerCredentials, name: str = "ours", verb: str = "patch") -> Caller:
        return await self.doors.admit(presented, verb, "vmafxnodes", self.namespace, name, "status")

    async def refusal(self, presented: CallerCredentials, name: str = "ours", verb: str = "patch") -> str:
        with pytest.raises(CallRefused) as refused:
            await self.admit(presented, name, verb)
        assert len(presented.token) < 8 or presented.token not in str(refused.value)
        return refused.value.code


@pytest.fixture
async def entrance(client: Client, namespace: str, kubectl: Kubectl) -> AsyncIterator[Entrance]:
    await create_account(client, ObjectKey(namespace, "agent"))
    token = await service_account_token(client, ObjectKey(namespace, "agent"), AUDIENCE)
    role = ["--verb=patch", "--resource=vmafxnodes.vmafx.dev/status", "--resource-name=ours"]
    assert kubectl("create", "role", "agent", *role).returncode == 0
    subjects = [f"--serviceaccount={namespace}:agent", "--group=video"]
    assert kubectl("create", "rolebinding", "agent", "--role=agent", *subjects).returncode == 0
    async with FaultyProxy(client.config) as proxy, Client(proxy.config) as through:
        clock = Clock()
        made = Entrance(TokenAccess(through, clock), proxy, clock, namespace, token)

        async def bound() -> bool:
            clock.at += access.ALLOWED_TTL
            try:
                await made.admit(CallerCredentials(token))
            except CallRefused:
                return False
            return True

        await eventually(bound, "the server has seen the binding")
        clock.at += access.ALLOWED_TTL * 2
        proxy.seen.clear()
        yield made


def made_up(number: int) -> str:
    """What only the server can tell from a token."""
    parts = (b'{"alg":"ES256"}', b'{"n":%d}' % number, b"signature")
    return ".".join(urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


async def test_a_token_for_us_is_who_it_says(entrance: Entrance) -> None:
    caller = await entrance.admit(CallerCredentials(entrance.token))
    assert caller.user == f"system:serviceaccount:{entrance.namespace}:agent"
    assert {"system:authenticated", "system:serviceaccounts"} <= set(caller.groups)
    assert caller.uid
    assert await entrance.doors.who(CallerCredentials(entrance.token)) == caller


async def test_answers_hold_for_a_minute_and_no_longer(entrance: Entrance) -> None:
    for _ in range(3):
        await entrance.admit(CallerCredentials(entrance.token))
    assert entrance.reviews() == 2
    entrance.clock.at += 59
    await entrance.admit(CallerCredentials(entrance.token))
    assert entrance.reviews() == 2
    entrance.clock.at += 1
    await entrance.admit(CallerCredentials(entrance.token))
    assert entrance.reviews() == 4


async def test_what_many_ask_at_once_is_asked_once(entrance: Entrance) -> None:
    presented = CallerCredentials(entrance.token)
    gone = asyncio.create_task(entrance.admit(presented))  # the first to ask, who does not wait for the answer
    await asyncio.sleep(0)
    others = [asyncio.create_task(entrance.admit(presented)) for _ in range(50)]
    await asyncio.sleep(0)
    gone.cancel()
    assert len({caller.uid for caller in await asyncio.gather(*others)}) == 1
    assert entrance.reviews() == 2


async def test_a_token_for_somebody_else_is_refused(entrance: Entrance, client: Client) -> None:
    key = ObjectKey(entrance.namespace, "agent")
    for audience in ("", "vault", "vmafx-controller2"):
        token = await service_account_token(client, key, audience)
        assert await entrance.refusal(CallerCredentials(token)) == "UNAUTHENTICATED"


async def test_an_expired_token_is_refused(entrance: Entrance, cluster: DevCluster) -> None:
    signing, now = cluster.folder / "pki/service-account.key", int(time.time())
    still = resigned(entrance.token, signing, iat=now - 7200, nbf=now - 7200, exp=now + 3600)
    await entrance.admit(CallerCredentials(still))  # so what follows is refused for its date alone
    over = resigned(entrance.token, signing, iat=now - 7200, nbf=now - 7200, exp=now - 3600)
    assert await entrance.refusal(CallerCredentials(over)) == "UNAUTHENTICATED"
    forged = still[:-8] + "AAAAAAAA"
    assert await entrance.refusal(CallerCredentials(forged)) == "UNAUTHENTICATED"


async def test_what_is_known_of_a_token_does_not_outlive_it(entrance: Entrance) -> None:
    expires = token_expiry(entrance.token)
    assert expires is not None
    entrance.doors._wall = lambda: expires.timestamp() - 10
    await entrance.admit(CallerCredentials(entrance.token))
    entrance.clock.at += 9
    await entrance.admit(CallerCredentials(entrance.token))
    assert entrance.reviews() == 2
    entrance.clock.at += 3
    await entrance.admit(CallerCredentials(entrance.token))
    assert entrance.reviews() == 3  # whose it is; what they may do still holds


async def test_a_revoked_token_is_refused_within_a_minute(entrance: Entrance, client: Client) -> None:
    await entrance.admit(CallerCredentials(entrance.token))
    await client.delete(ACCOUNTS, ObjectKey(entrance.namespace, "agent"))
    await entrance.admit(CallerCredentials(entrance.token))  # as last heard

    async def refused() -> bool:
        entrance.clock.at += 60
        try:
            await entrance.admit(CallerCredentials(entrance.token))
        except CallRefused as error:
            return error.code == "UNAUTHENTICATED"
        return False

    await eventually(refused, "the server has seen that the account is gone")


async def test_only_what_the_role_allows_by_name_and_verb(entrance: Entrance) -> None:
    presented = CallerCredentials(entrance.token)
    await entrance.admit(presented, "ours")
    assert await entrance.refusal(presented, "theirs") == "PERMISSION_DENIED"
    assert await entrance.refusal(presented, "") == "PERMISSION_DENIED"
    assert await entrance.refusal(presented, "ours", "delete") == "PERMISSION_DENIED"
    with pytest.raises(CallRefused, match=r"may not create vmafxjobs in namespace 'default'$"):
        await entrance.doors.admit(presented, "create", "vmafxjobs", "default")
    with pytest.raises(CallRefused, match=r"may not watch vmafxjobs in all namespaces$"):
        await entrance.doors.admit(presented, "watch", "vmafxjobs", "")
    with pytest.raises(CallRefused, match="more than 253 characters"):
        await entrance.admit(presented, "x" * 254)


async def test_a_denial_is_remembered_for_less_than_a_minute(entrance: Entrance, kubectl: Kubectl) -> None:
    presented = CallerCredentials(entrance.token)
    for _ in range(3):
        assert await entrance.refusal(presented, "theirs") == "PERMISSION_DENIED"
    assert entrance.reviews() == 2
    role = ["--verb=patch", "--resource=vmafxnodes.vmafx.dev/status", "--resource-name=theirs"]
    kubectl("create", "role", "more", *role)
    kubectl("create", "rolebinding", "more", "--role=more", f"--serviceaccount={entrance.namespace}:agent")

    async def allowed() -> bool:
        entrance.clock.at += access.DENIED_TTL
        try:
            await entrance.admit(presented, "theirs")
        except CallRefused:
            return False
        return True

    await eventually(allowed, "the server has seen the new binding")


async def test_a_certificate_stands_for_itself(entrance: Entrance) -> None:
    caller = await entrance.admit(CallerCredentials(user="alice", groups=("video",)))
    assert caller == Caller("alice", "", ("video", "system:authenticated"))
    assert entrance.reviews() == 1  # only what she may do
    assert await entrance.refusal(CallerCredentials(user="alice", groups=("audio",))) == "PERMISSION_DENIED"
    assert await entrance.refusal(CallerCredentials(user="video")) == "PERMISSION_DENIED"
    # A bad token is not made good by a certificate beside it.
    assert await entrance.refusal(CallerCredentials(made_up(0), "alice", ("video",))) == "UNAUTHENTICATED"


async def test_who_shows_nothing_is_told_what_to_show(entrance: Entrance) -> None:
    with pytest.raises(CallRefused, match="audience vmafx-controller"):
        await entrance.admit(CallerCredentials())
    assert entrance.reviews() == 0


@pytest.mark.parametrize(
    "token",
    ["x", "a.b.c", "a.b", "a.e30.c.d", "a..c", ".e30.c", "a.e30.", "a.e30.\n", "a.e30.ü", "\udc80", "a.W10.c",
     "a.bnVsbA.c", "a.eyJleHAiOiAieCJ9.c", "a." + "Wy" * 2000 + ".c", f"a.{'e' * 9000}.c", "x" * 1_000_000],
)  # fmt: skip
async def test_what_cannot_be_a_token_is_refused_unasked(entrance: Entrance, token: str) -> None:
    assert await entrance.refusal(CallerCredentials(token)) == "UNAUTHENTICATED"
    assert entrance.reviews() == 0


async def test_a_flood_of_bad_tokens_does_not_reach_the_server(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviews, "MAX_WAIT", 60.0)  # nobody is refused because the server is slow

    async def try_one(number: int) -> str:
        return await entrance.refusal(CallerCredentials(made_up(number), peer=f"ipv4:192.0.2.1:{number}"))

    codes = await asyncio.gather(*(try_one(number) for number in range(1000)))
    assert set(codes) == {"UNAUTHENTICATED", "RESOURCE_EXHAUSTED"}
    at_first = entrance.reviews()
    assert access.MAX_FAILURES <= at_first <= access.MAX_FAILURES + reviews.MAX_CONCURRENT
    assert {await try_one(number) for number in range(1000, 1100)} == {"RESOURCE_EXHAUSTED"}
    assert entrance.reviews() == at_first
    # Those from elsewhere come in, and so does, after a while, who is behind the same address.
    await entrance.admit(CallerCredentials(entrance.token, peer="192.0.2.2"))
    entrance.clock.at += access.FAILURE_DECAY * (reviews.MAX_CONCURRENT + 1)
    await entrance.admit(CallerCredentials(entrance.token, peer="192.0.2.1"))


async def test_the_same_bad_token_is_asked_about_once(entrance: Entrance) -> None:
    for _ in range(100):
        assert await entrance.refusal(CallerCredentials(made_up(0))) == "UNAUTHENTICATED"
    assert entrance.reviews() == 1


async def test_who_asks_for_everything_is_not_answered_for_ever(entrance: Entrance) -> None:
    presented = CallerCredentials(entrance.token)
    codes = [await entrance.refusal(presented, f"n-{number}") for number in range(100)]
    assert codes == ["PERMISSION_DENIED"] * access.MAX_FAILURES + ["RESOURCE_EXHAUSTED"] * (100 - access.MAX_FAILURES)
    assert entrance.reviews() == 1 + access.MAX_FAILURES
    await entrance.admit(CallerCredentials(user="alice", groups=("video",)))  # another caller


async def test_so_many_reviews_at_once_and_the_rest_waits_its_turn(
    entrance: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviews, "MAX_WAIT", 0.3)
    monkeypatch.setattr(reviews, "REVIEW_TIMEOUT", 3.0)
    entrance.proxy.faults.extend(Stall() for _ in range(100))

    async def try_one(number: int) -> str:
        return await entrance.refusal(CallerCredentials(made_up(number), peer=str(number)))

    codes = await asyncio.gather(*(try_one(number) for number in range(40)))
    assert (
        sorted(codes)
        == ["RESOURCE_EXHAUSTED"] * (40 - reviews.MAX_CONCURRENT) + ["UNAVAILABLE"] * reviews.MAX_CONCURRENT
    )
    assert entrance.reviews() == reviews.MAX_CONCURRENT
    entrance.proxy.faults.clear()
    monkeypatch.undo()
    await entrance.admit(CallerCredentials(entrance.token))  # every turn was given back


async def test_while_the_server_is_away_what_was_heard_holds(entrance: Entrance, client: Client) -> None:
    other = CallerCredentials(await service_account_token(client, ObjectKey(entrance.namespace, "agent"), AUDIENCE))
    await entrance.admit(CallerCredentials(entrance.token))
    entrance.proxy.faults.extend(Refuse(500) for _ in range(3))
    await entrance.admit(CallerCredentials(entrance.token))
    assert await entrance.refusal(other) == "UNAVAILABLE"
    assert await entrance.refusal(CallerCredentials(entrance.token), "theirs") == "UNAVAILABLE"
    entrance.clock.at += access.ALLOWED_TTL
    assert await entrance.refusal(CallerCredentials(entrance.token)) == "UNAVAILABLE"
    await entrance.admit(other)  # that it was away is not held against anybody
    await entrance.admit(CallerCredentials(entrance.token))


async def test_no_token_is_ever_logged(entrance: Entrance, monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(logs._sink, "out", said)
    monkeypatch.setattr(logs._sink, "rank", 0)
    await entrance.refusal(CallerCredentials(made_up(1), peer="192.0.2.1"))
    await entrance.refusal(CallerCredentials(entrance.token), "theirs")
    entrance.proxy.faults.append(Refuse(500, body=f"what is {made_up(2)}?"))
    await entrance.refusal(CallerCredentials(made_up(2)))
    lines = said.getvalue()
    assert "nobody's" in lines
    assert "denied" in lines
    assert "did not answer a review" in lines
    assert not [token for token in (entrance.token, made_up(1), made_up(2)) if token.rpartition(".")[0] in lines]


async def test_no_token_is_kept(entrance: Entrance) -> None:
    await entrance.admit(CallerCredentials(entrance.token))
    await entrance.refusal(CallerCredentials(made_up(1)))
    kept = repr([list(cache._known.items()) for cache in (entrance.doors._users, entrance.doors._strangers)])
    assert entrance.namespace in kept
    assert entrance.token not in kept
    assert made_up(1) not in kept


async def test_insecure_doors_are_open() -> None:
    caller = await InsecureAccess().admit(CallerCredentials("whatever"), "create", "vmafxjobs", "default")
    assert caller.user == "system:anonymous"
