"""Session tokens of agents: signed JWTs, so that every replica can verify them and none has to store them.

The signing key is in a Secret that the first replica creates. To revoke all session tokens, delete the Secret and
restart the controllers; agents then register again.
"""

import base64
import secrets
import time
from typing import NamedTuple

import jwt
import msgspec

from vmafx.controller.rbac import SESSION_SECRET
from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import SECRETS
from vmafx.kube.errors import AlreadyExists, ConfigError, NotFound
from vmafx.kube.resources import UntypedObject

ALGORITHM = "HS256"
KEY_FIELD = "key"
KEY_BYTES = 32
MAX_TOKEN = 1024  # characters


class Session(NamedTuple):
    """One registration of an agent."""

    node: ObjectKey
    id: str
    started: float  # Unix seconds


class _Claims(msgspec.Struct):
    namespace: str
    node: str
    session: str
    iat: float


class Sessions:
    """Starts sessions, and signs and verifies their tokens."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def start(self, node: ObjectKey) -> Session:
        return Session(node, secrets.token_hex(16), time.time())

    def sign(self, session: Session) -> str:
        claims = _Claims(session.node.namespace, session.node.name, session.id, session.started)
        return jwt.encode(msgspec.structs.asdict(claims), self._key, ALGORITHM)

    def verify(self, token: str) -> Session | None:
        """Return the session of a token; None if it was not signed with the key."""
        if len(token) > MAX_TOKEN:
            return None
        try:
            # `iat` may lie in the future: the clocks of the replicas differ.
            payload = jwt.decode(token, self._key, [ALGORITHM], options={"verify_iat": False})
            claims = msgspec.convert(payload, _Claims)
        except (jwt.InvalidTokenError, msgspec.ValidationError, UnicodeEncodeError):
            return None
        return Session(ObjectKey(claims.namespace, claims.node), claims.session, claims.iat)


async def signing_key(client: Client, namespace: str) -> bytes:
    """Read the key from its Secret, which is created if it does not exist."""
    secret_key = ObjectKey(namespace, SESSION_SECRET)
    while True:
        try:
            return _key_in(await client.get(SECRETS, secret_key), secret_key)
        except NotFound:
            pass
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": SESSION_SECRET, "namespace": namespace},
            "data": {KEY_FIELD: base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()},
        }
        try:
            return _key_in(await client.create(SECRETS, secret, namespace), secret_key)
        except AlreadyExists:  # another replica was faster
            continue


def _key_in(secret: UntypedObject, name: ObjectKey) -> bytes:
    try:
        key = base64.b64decode((secret.get("data") or {}).get(KEY_FIELD, ""), validate=True)
    except ValueError:
        key = b""
    if len(key) < KEY_BYTES:
        raise ConfigError(
            f"the Secret {name} has no {KEY_FIELD!r} of at least {KEY_BYTES} bytes; delete it, and a new one is created"
        )
    return key
