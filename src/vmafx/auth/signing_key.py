"""Signing keys in Secrets: random text, which can be a variable of a Pod; the first process that needs one makes it.

To revoke what was signed with a key, delete its Secret.
"""

import base64
import secrets

from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import SECRETS
from vmafx.kube.errors import AlreadyExists, ConfigError, Conflict, NotFound
from vmafx.kube.resources import UntypedObject

KEY_FIELD = "key"
KEY_BYTES = 32


async def read_key(client: Client, secret: ObjectKey) -> bytes | None:
    """The key in a Secret; None if there is no such Secret, or an empty one. Raises ConfigError if it is not usable."""
    try:
        found = await client.get(SECRETS, secret)
    except NotFound:
        return None
    return _key_in(found, secret) if found.get("data") else None


async def ensure_key(client: Client, secret: ObjectKey) -> bytes:
    """Read the key from its Secret, which is created if it does not exist, and filled if it is empty."""
    while True:
        data = {KEY_FIELD: base64.b64encode(secrets.token_hex(KEY_BYTES).encode()).decode()}
        try:
            found = await client.get(SECRETS, secret)
        except NotFound:
            metadata = {"name": secret.name, "namespace": secret.namespace}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}
            try:
                return _key_in(await client.create(SECRETS, body, secret.namespace), secret)
            except AlreadyExists:  # another process was faster
                continue
        if found.get("data"):
            return _key_in(found, secret)
        # The Helm chart creates it empty, so that it is deleted with the release.
        unchanged = {"resourceVersion": found["metadata"]["resourceVersion"]}
        try:
            return _key_in(await client.merge_patch(SECRETS, secret, {"metadata": unchanged, "data": data}), secret)
        except (Conflict, NotFound):
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
