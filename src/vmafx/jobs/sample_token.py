"""Signed tokens to push samples with.

A token is `v1.PAYLOAD.SIGNATURE`: claims and expiry as JSON and their HMAC-SHA256, both in base64url. Every kind of
claims has its own tag, so that a token of a Pod is not accepted by a trainer.
"""

import binascii
import hmac
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import TypeVar

import msgspec

VERSION = "v1"
CONTEXT = b"vmafx-samples/v1\n"  # signed with the claims: the key signs nothing else that starts like this
MAX_TOKEN = 2048  # characters; the longest names take 800
ATTEMPT_LIFETIME = 7 * 24 * 3600  # seconds; agents keep undelivered samples for as long
TRAINER_LIFETIME = 60 + 300  # seconds: for one request, with up to five minutes between the clocks of two machines


class AttemptClaims(msgspec.Struct, frozen=True, tag_field="kind", tag="attempt"):
    """The bearer may push samples of this attempt. With `agent`, only in a session of the node's agent."""

    namespace: str
    node: str
    job: str  # uid of the VmafxJob
    attempt: str  # its controllerJobID
    agent: bool = False
    human_score: float | None = None  # of the job


class TrainerClaims(msgspec.Struct, frozen=True, tag_field="kind", tag="trainer"):
    """The bearer may send samples and labels to the trainer of `audience`, see `trainer_audience`."""

    audience: str


class _Payload(msgspec.Struct, frozen=True):
    expires: int  # Unix seconds
    claims: msgspec.Raw


C = TypeVar("C", bound=AttemptClaims | TrainerClaims)


def trainer_audience(namespace: str, name: str) -> str:
    """The audience of the trainer of a VmafxModelTraining."""
    return f"trainer/{namespace}/{name}"


def sign(key: bytes, claims: AttemptClaims | TrainerClaims, clock: Callable[[], float] = time.time) -> str:
    lifetime = ATTEMPT_LIFETIME if isinstance(claims, AttemptClaims) else TRAINER_LIFETIME
    signed = _Payload(int(clock()) + lifetime, msgspec.Raw(msgspec.json.encode(claims)))
    payload = msgspec.json.encode(signed)
    return f"{VERSION}.{_text(payload)}.{_text(_signature(key, payload))}"


def verify(key: bytes, token: str, kind: type[C], clock: Callable[[], float] = time.time) -> C | None:
    """The claims of a token; None if it was not signed with the key, has expired, or has claims of another kind."""
    parts = _parts(token)
    if parts is None:
        return None
    payload, signature = parts
    if not hmac.compare_digest(_signature(key, payload), signature):
        return None
    return _decode(payload, kind, clock())


def unverified_claims(token: str, kind: type[C]) -> C | None:
    """The claims of a token whose signature and expiry were not checked: only to find the key to verify it with."""
    parts = _parts(token)
    return None if parts is None else _decode(parts[0], kind, now=0)


def _parts(token: str) -> tuple[bytes, bytes] | None:
    """Payload and signature."""
    version, _, rest = token.partition(".")
    payload, _, signature = rest.partition(".")
    if len(token) > MAX_TOKEN or version != VERSION or not token.isascii():
        return None
    try:
        return _bytes(payload), _bytes(signature)
    except (binascii.Error, ValueError):
        return None


def _decode(payload: bytes, kind: type[C], now: float) -> C | None:
    try:
        signed = msgspec.json.decode(payload, type=_Payload)
        return msgspec.json.decode(signed.claims, type=kind) if now < signed.expires else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _signature(key: bytes, payload: bytes) -> bytes:
    return hmac.digest(key, CONTEXT + payload, "sha256")


def _text(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
