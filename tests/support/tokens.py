"""Real service-account tokens of the test cluster, and clients that have nothing else."""

import ssl

import msgspec

from vmafx.kube import Client, Config, Key, Resource
from vmafx.kube.credentials import StaticToken
from vmafx.kube.resources import Untyped

ACCOUNTS: Resource[Untyped] = Resource("", "v1", "serviceaccounts", "ServiceAccount", dict)


async def service_account_token(client: Client, key: Key) -> str:
    """A token of an account that exists, as the kubelet would ask for it."""
    tokens: Resource[Untyped] = Resource("", "v1", f"serviceaccounts/{key.name}/token", "TokenRequest", dict)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    token: str = (await client.create(tokens, body, key.namespace))["status"]["token"]
    return token


async def create_account(client: Client, key: Key) -> str:
    """Make an account; returns its uid."""
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": key.name}}
    uid: str = (await client.create(ACCOUNTS, body, key.namespace))["metadata"]["uid"]
    return uid


def bearing(token: str, config: Config) -> Config:
    """The same server, by a token and without the administrator's certificate."""
    return msgspec.structs.replace(config, tls=trusting(config), credentials=StaticToken(token))


def trusting(config: Config) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority(config))


def authority(config: Config) -> str:
    """The cluster's CA, as PEM."""
    assert config.tls is not None
    return "".join(ssl.DER_cert_to_PEM_cert(der) for der in config.tls.get_ca_certs(binary_form=True))
