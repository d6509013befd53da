"""Session tokens: signed, so that every replica knows them and none has to keep them.

The key is in a Secret that the first replica makes. To make all tokens void, delete it and restart the controllers:
agents then register again.
"""

import base64
import hashlib
import hmac
import secrets
import time
from typing import NamedTuple

import msgspec

from vmafx.controller.rbac import SESSION_SECRET
from vmafx.kube import Client, Key
from vmafx.kube.core import SECRETS
from vmafx.kube.errors import AlreadyExists, ConfigError, NotFound
from vmafx.kube.resources import Untyped

FIELD = "key"
KEY_BYTES = 32
TOKEN_MOST = 1024  # characters


class Session(NamedTuple):
    """One agent, from its registration on."""

    node: Key
    id: str
    begun: float  # Unix seconds


class Sessions:
    """Makes tokens and reads them."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def begin(self, node: Key) -> Session:
        return Session(node, secrets.token_hex(16), time.time())

    def token(self, session: Session) -> str:
        said = msgspec.json.encode([*session.node, session.id, session.begun])
        return f"{_text(said)}.{_text(self._sign(said))}"

    def read(self, token: str) -> Session | None:
        """Whose it is; None if we did not sign it."""
        if len(token) > TOKEN_MOST:
            return None
        said, _, signature = token.partition(".")
        try:
            content, signed = _bytes(said), _bytes(signature)
        except ValueError:
            return None
        if not hmac.compare_digest(self._sign(content), signed):
            return None
        namespace, name, identifier, begun = msgspec.json.decode(content, type=tuple[str, str, str, float])
        return Session(Key(namespace, name), identifier, begun)

    def _sign(self, content: bytes) -> bytes:
        return hmac.digest(self._key, content, hashlib.sha256)


async def signing_key(client: Client, namespace: str) -> bytes:
    """The key in the Secret, which is made if there is none."""
    where = Key(namespace, SESSION_SECRET)
    while True:
        try:
            return _key_in(await client.get(SECRETS, where), where)
        except NotFound:
            pass
        made = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SESSION_SECRET, "namespace": namespace},
            "data": {FIELD: base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()},
        }
        try:
            return _key_in(await client.create(SECRETS, made, namespace), where)
        except AlreadyExists:  # by another replica, at the same moment
            continue


def _key_in(secret: Untyped, where: Key) -> bytes:
    try:
        key = base64.b64decode((secret.get("data") or {}).get(FIELD, ""), validate=True)
    except ValueError:
        key = b""
    if len(key) < KEY_BYTES:
        raise ConfigError(f"the Secret {where} has no {FIELD} of {KEY_BYTES} bytes; delete it, and it is made anew")
    return key


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
