"""Tokens of samples: verified with the key of their namespace, for what they were signed for and nothing else."""

import hmac
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.jobs.sample_token import (
    ATTEMPT_LIFETIME,
    CONTEXT,
    MAX_TOKEN,
    TRAINER_LIFETIME,
    AttemptClaims,
    TrainerClaims,
    sign,
    trainer_audience,
    unverified_claims,
    verify,
)

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
CLAIMS = AttemptClaims("video", "gpu-1", "uid", "uid-0")
TOKEN = sign(KEY, CLAIMS, lambda: 4e9)  # the same in every run
INCOMPLETE = b'{"expires":9999999999,"claims":{"kind":"attempt"}}'


def test_a_token_is_verified_with_its_key_only() -> None:
    assert verify(KEY, TOKEN, AttemptClaims) == CLAIMS
    assert verify(OTHER_KEY, TOKEN, AttemptClaims) is None
    assert unverified_claims(TOKEN, AttemptClaims) == CLAIMS


def test_the_token_of_a_pod_is_useless_at_a_trainer() -> None:
    assert verify(KEY, TOKEN, TrainerClaims) is None
    token = sign(KEY, TrainerClaims(trainer_audience("video", "main")))
    assert verify(KEY, token, AttemptClaims) is None
    assert verify(KEY, token, TrainerClaims) == TrainerClaims("trainer/video/main")


def test_the_longest_names_fit_into_a_token() -> None:
    uid = "0" * 36
    claims = AttemptClaims("n" * 63, "m" * 253, uid, f"{uid}-{2**31}", agent=True)
    assert len(token := sign(KEY, claims)) <= MAX_TOKEN
    assert verify(KEY, token, AttemptClaims) == claims


@pytest.mark.parametrize(
    ("claims", "lifetime"), [(CLAIMS, ATTEMPT_LIFETIME), (TrainerClaims("trainer/video/main"), TRAINER_LIFETIME)]
)
def test_a_token_expires(claims: AttemptClaims | TrainerClaims, lifetime: int) -> None:
    token = sign(KEY, claims, lambda: 1000.0)
    assert verify(KEY, token, type(claims), lambda: 1000.0 + lifetime - 1) == claims
    assert verify(KEY, token, type(claims), lambda: 1000.0 + lifetime) is None
    assert unverified_claims(token, type(claims)) == claims


@pytest.mark.parametrize("nested", [b'{"x":', b'{"expires":1,"claims":', b'{"expires":1,"claims":{"x":'])
def test_deeply_nested_claims_are_no_token(nested: bytes) -> None:
    nested += b"[" * 1300
    signature = hmac.digest(KEY, CONTEXT + nested, "sha256")
    token = f"v1.{part(nested)}.{part(signature)}"
    assert len(token) <= MAX_TOKEN
    assert unverified_claims(token, AttemptClaims) is None
    assert verify(KEY, token, AttemptClaims) is None


def part(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "v1",
        "v1..",
        "v1.a.b",
        TOKEN.replace("v1.", "v2.", 1),
        TOKEN.rpartition(".")[0],
        TOKEN.rpartition(".")[0] + ".",
        TOKEN + ".more",
        TOKEN[:-4],
        "é" + TOKEN,
        "\ud800",
        TOKEN + "A" * MAX_TOKEN,
        f"v1.{part(b'not JSON')}.{TOKEN.rpartition('.')[2]}",
        f"v1.{part(INCOMPLETE)}.{part(hmac.digest(KEY, CONTEXT + INCOMPLETE, 'sha256'))}",
    ],
)
def test_no_other_text_is_a_token(token: str) -> None:
    assert verify(KEY, token, AttemptClaims) is None


@given(st.text(max_size=100), st.integers(0, len(TOKEN) - 1), st.characters(codec="ascii"))
def test_no_changed_token_has_other_claims(text: str, at: int, character: str) -> None:
    assert verify(KEY, text, AttemptClaims) is None
    changed = TOKEN[:at] + character + TOKEN[at + 1 :]
    assert verify(KEY, changed, AttemptClaims) in (None, CLAIMS)  # the last character of a part has unused bits


@given(st.binary(max_size=200))
def test_claims_that_were_signed_by_nobody_are_not_accepted(content: bytes) -> None:
    assert verify(KEY, f"v1.{part(content)}.{part(bytes(32))}", AttemptClaims) is None
