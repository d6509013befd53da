"""Signing keys in Secrets, also in one that the Helm chart has created empty."""

import asyncio

import pytest

from vmafx.auth.signing_key import KEY_BYTES, ensure_key, read_key
from vmafx.kube import Client, ObjectKey
from vmafx.kube.core import SECRETS
from vmafx.kube.errors import ConfigError


def secret(name: str, **fields: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": {"a": "b"}}, **fields}


@pytest.mark.parametrize("empty", [True, False])
async def test_processes_that_start_together_have_the_same_key(client: Client, namespace: str, empty: bool) -> None:
    key = ObjectKey(namespace, "key")
    if empty:
        await client.create(SECRETS, secret("key"), namespace)
    assert await read_key(client, key) is None
    made = await asyncio.gather(*(ensure_key(client, key) for _ in range(8)))
    assert set(made) == {await read_key(client, key)}
    assert len(made[0]) >= KEY_BYTES
    labels = (await client.get(SECRETS, key))["metadata"].get("labels")
    assert labels == ({"a": "b"} if empty else None)


async def test_a_key_that_is_too_short_is_an_error_and_stays(client: Client, namespace: str) -> None:
    await client.create(SECRETS, secret("short", stringData={"key": "x"}), namespace)
    for call in (read_key, ensure_key):
        with pytest.raises(ConfigError, match="delete it, and a new one is created"):
            await call(client, ObjectKey(namespace, "short"))
