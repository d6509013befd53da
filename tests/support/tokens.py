"""Real service account tokens of the test cluster, and client configurations that use only a token."""

import json
import ssl
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from vmafx.kube import Client, Config, ObjectKey, Resource
from vmafx.kube.credentials import StaticToken
from vmafx.kube.resources import UntypedObject

ACCOUNTS: Resource[UntypedObject] = Resource("", "v1", "serviceaccounts", "ServiceAccount", dict)
RBAC = "rbac.authorization.k8s.io"
ROLES: Resource[UntypedObject] = Resource(RBAC, "v1", "roles", "Role", dict)
BINDINGS: Resource[UntypedObject] = Resource(RBAC, "v1", "rolebindings", "RoleBinding", dict)


async def service_account_token(client: Client, key: ObjectKey, audience: str = "") -> str:
    """A token of an existing account, as the kubelet requests it; without an audience, for the API server."""
    tokens: Resource[UntypedObject] = Resource("", "v1", f"serviceaccounts/{key.name}/token", "TokenRequest", dict)
    spec = {"expirationSeconds": 3600, **({"audiences": [audience]} if audience else {})}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    token: str = (await client.create(tokens, body, key.namespace))["status"]["token"]
    return token


async def create_account(client: Client, key: ObjectKey) -> str:
    """Create an account; return its uid."""
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": key.name}}
    uid: str = (await client.create(ACCOUNTS, body, key.namespace))["metadata"]["uid"]
    return uid


async def grant(client: Client, account: ObjectKey, *rules: dict[str, list[str]]) -> None:
    """Create an account with a role of these rules in its namespace."""
    await create_account(client, account)
    meta, api = {"name": account.name}, f"{RBAC}/v1"
    role = {"apiVersion": api, "kind": "Role", "metadata": meta, "rules": list(rules)}
    await client.create(ROLES, role, account.namespace)
    subject = {"kind": "ServiceAccount", "name": account.name, "namespace": account.namespace}
    reference = {"apiGroup": RBAC, "kind": "Role", "name": account.name}
    body = {"apiVersion": api, "kind": "RoleBinding", "metadata": meta, "subjects": [subject], "roleRef": reference}
    await client.create(BINDINGS, body, account.namespace)


def resigned(token: str, signing_key: Path, **claims: Any) -> str:
    """The token with other claims, signed with the cluster's key: for example, expired without waiting."""
    head, body, _ = token.split(".")
    said = json.loads(urlsafe_b64decode(body + "==")) | claims
    content = f"{head}.{_base64(json.dumps(said).encode())}"
    key = serialization.load_pem_private_key(signing_key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    r, s = utils.decode_dss_signature(key.sign(content.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{content}.{_base64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _base64(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")


def bearing(token: str, config: Config) -> Config:
    """A configuration for the same server with a token and without the administrator's certificate."""
    return msgspec.structs.replace(config, tls=trusting(config), credentials=StaticToken(token))


def trusting(config: Config) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority(config))


def authority(config: Config) -> str:
    """The cluster's CA, as PEM."""
    assert config.tls is not None
    return "".join(ssl.DER_cert_to_PEM_cert(der) for der in config.tls.get_ca_certs(binary_form=True))
