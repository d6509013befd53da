"""Session tokens: read by whoever has the key, and by nobody else's making."""

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.controller.sessions import ALGORITHM, MAX_TOKEN, Session, Sessions
from vmafx.kube import ObjectKey

KEY, OTHER = b"k" * 32, b"x" * 32
SESSION = Session(ObjectKey("video", "n" * 63), "0" * 32, 1_799_999_999.25)
CLAIMS = {"namespace": "video", "node": "gpu-1", "session": "s", "iat": 1.5}


def test_every_replica_reads_what_another_made() -> None:
    token = Sessions(KEY).token(SESSION)
    assert len(token) <= MAX_TOKEN
    assert Sessions(KEY).read(token) == SESSION
    assert Sessions(OTHER).read(token) is None
    assert Sessions(KEY).read(jwt.encode(CLAIMS, KEY, ALGORITHM)) == Session(ObjectKey("video", "gpu-1"), "s", 1.5)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "nonsense",
        "a.b.c",
        "\ud800.b.c",
        jwt.encode(CLAIMS, "", "none"),
        jwt.encode(CLAIMS, KEY + KEY, "HS512"),
        jwt.encode(CLAIMS | {"node": 7}, KEY, ALGORITHM),
        jwt.encode({"node": "gpu-1"}, KEY, ALGORITHM),
        jwt.encode(CLAIMS | {"more": "x" * MAX_TOKEN}, KEY, ALGORITHM),
    ],
)
def test_what_is_no_token_of_ours_is_nobodys(token: str) -> None:
    assert Sessions(KEY).read(token) is None


@given(st.text(max_size=200), st.integers(0, 400))
def test_whatever_is_sent_is_read_or_not_and_never_an_error(text: str, at: int) -> None:
    token = Sessions(KEY).token(SESSION)
    assert Sessions(KEY).read(text) is None
    changed = token[: at % len(token)] + ("A" if token[at % len(token)] != "A" else "B") + token[at % len(token) + 1 :]
    assert Sessions(KEY).read(changed) in (None, SESSION)  # the last character has bits that say nothing
