"""Session tokens: any replica with the key verifies them, and no other token is accepted."""

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.controller.sessions import ALGORITHM, MAX_TOKEN, Session, Sessions
from vmafx.kube import ObjectKey

KEY, OTHER = b"k" * 32, b"x" * 32
SESSION = Session(ObjectKey("video", "n" * 63), "0" * 32, 1_799_999_999.25)
CLAIMS = {"namespace": "video", "node": "gpu-1", "session": "s", "iat": 1.5}


def test_a_token_is_verified_with_the_same_key_only() -> None:
    token = Sessions(KEY).sign(SESSION)
    assert len(token) <= MAX_TOKEN
    assert Sessions(KEY).verify(token) == SESSION
    assert Sessions(OTHER).verify(token) is None
    assert Sessions(KEY).verify(jwt.encode(CLAIMS, KEY, ALGORITHM)) == Session(ObjectKey("video", "gpu-1"), "s", 1.5)


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
def test_an_invalid_token_has_no_session(token: str) -> None:
    assert Sessions(KEY).verify(token) is None


@given(st.text(max_size=200), st.integers(0, 400))
def test_no_random_token_raises_an_error(text: str, at: int) -> None:
    token = Sessions(KEY).sign(SESSION)
    assert Sessions(KEY).verify(text) is None
    changed = token[: at % len(token)] + ("A" if token[at % len(token)] != "A" else "B") + token[at % len(token) + 1 :]
    assert Sessions(KEY).verify(changed) in (None, SESSION)  # the last character has unused bits
