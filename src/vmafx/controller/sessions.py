"""Session tokens of agents: signed JWTs, so that every replica can verify them and none has to store them.

The signing key is in a Secret that the first replica creates. To revoke all session tokens, delete the Secret and
restart the controllers; agents then register again.
"""

import secrets
import time
from typing import NamedTuple

import jwt
import msgspec

from vmafx.auth.signing_key import ensure_key
from vmafx.controller.rbac import SESSION_SECRET
from vmafx.kube import Client, ObjectKey

ALGORITHM = "HS256"
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
    return await ensure_key(client, ObjectKey(namespace, SESSION_SECRET))
