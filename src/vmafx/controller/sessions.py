"""Session tokens: signed, so that every replica knows them and none has to keep them.

The key is in a Secret that the first replica makes. To make all tokens void, delete it and restart the controllers:
agents then register again.
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
FIELD = "key"
KEY_BYTES = 32
MAX_TOKEN = 1024  # characters


class Session(NamedTuple):
    """One agent, from its registration on."""

    node: ObjectKey
    id: str
    begun: float  # Unix seconds


class _Claims(msgspec.Struct):
    namespace: str
    node: str
    session: str
    iat: float


class Sessions:
    """Makes tokens and reads them: JWTs, signed with one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def begin(self, node: ObjectKey) -> Session:
        return Session(node, secrets.token_hex(16), time.time())

    def token(self, session: Session) -> str:
        claims = _Claims(session.node.namespace, session.node.name, session.id, session.begun)
        return jwt.encode(msgspec.structs.asdict(claims), self._key, ALGORITHM)

    def read(self, token: str) -> Session | None:
        """Whose it is; None if we did not sign it."""
        if len(token) > MAX_TOKEN:
            return None
        try:
            # Replicas' clocks differ: one may read what another is about to have signed.
            said = jwt.decode(token, self._key, [ALGORITHM], options={"verify_iat": False})
            claims = msgspec.convert(said, _Claims)
        except (jwt.InvalidTokenError, msgspec.ValidationError, UnicodeEncodeError):
            return None
        return Session(ObjectKey(claims.namespace, claims.node), claims.session, claims.iat)


async def signing_key(client: Client, namespace: str) -> bytes:
    """The key in the Secret, which is made if there is none."""
    where = ObjectKey(namespace, SESSION_SECRET)
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


def _key_in(secret: UntypedObject, where: ObjectKey) -> bytes:
    try:
        key = base64.b64decode((secret.get("data") or {}).get(FIELD, ""), validate=True)
    except ValueError:
        key = b""
    if len(key) < KEY_BYTES:
        raise ConfigError(f"the Secret {where} has no {FIELD} of {KEY_BYTES} bytes; delete it, and it is made anew")
    return key
