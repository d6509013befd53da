"""Pushes versions of a model to an OCI registry, with oras.

oras-py has no timeouts, sleeps for minutes between its retries and encodes manifests in its own way. Here, every
request has a timeout and is sent once, since the trainer tries again itself, and the manifest's bytes are ours.
"""

import logging
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import oras.auth.utils
import oras.container
import oras.provider
import requests
import requests.adapters

from vmafx.scoring.artifact import MANIFEST_TYPE, ModelArtifact, decode_manifest
from vmafx.scoring.errors import NodeFault
from vmafx.scoring.media.registries import find_credentials, url_of

TIMEOUT = 30.0  # seconds to connect, and without a byte
_REASONS: tuple[tuple[type[Exception], str], ...] = (  # the first match applies
    (requests.exceptions.SSLError, "its TLS certificate is not trusted, or it does not speak TLS"),
    (requests.exceptions.Timeout, "it does not answer in time"),
    (requests.exceptions.ConnectionError, "cannot connect to it"),
)


_UNEXPECTED = (ValueError, TypeError, AttributeError, LookupError)  # what oras raises for odd responses
logging.getLogger("oras.logger").disabled = True  # PushFailed says it


class PushFailed(Exception):
    """The registry could not be reached or refused the version. The message contains no credentials."""


class ModelRepository:
    """A repository in an OCI registry. Its methods block: call them in a thread."""

    def __init__(
        self,
        name: str,
        *,
        insecure: Collection[str] = (),
        docker_config: Path | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        """`name` is REGISTRY/PATH. `docker_config` is a folder with a config.json, read again for every push."""
        self.name = name
        self._registry, _, self._path = name.partition("/")
        self._url = url_of(self._registry, insecure)
        self._docker_config, self._timeout = docker_config, timeout

    def push(self, artifact: ModelArtifact, number: int) -> None:
        """Push a version, and tag it as v<number> and latest. May be repeated. Raises PushFailed."""
        try:
            client = self._connect()
            self._push_blobs(client, artifact)
            for reference in (artifact.digest, f"v{number}", "latest"):
                self._push_manifest(client, artifact, reference)
        except NodeFault as error:
            raise self._failed(str(error)) from None
        except _Denied as error:
            raise self._failed(f"it refused the credentials, or they do not allow to push ({error})") from None
        except (OSError, *_UNEXPECTED) as error:  # the messages contain URLs with upload tokens
            reasons = (reason for kind, reason in _REASONS if isinstance(error, kind))
            raise self._failed(next(reasons, "it did not answer as a registry does")) from None

    def _connect(self) -> Any:
        """A client that has the credentials which the registry asks for."""
        with _session(self._url, self._timeout) as session:
            response = session.get(f"{self._url}/v2/")
        if response.status_code not in {200, 401}:
            self._check(response, {200})
        challenge = response.headers.get("WWW-Authenticate", "") if response.status_code == 401 else ""
        kind = "basic" if challenge.lower().startswith("basic") else "token"
        plain = self._url.startswith("http:")
        client = _Client(self._registry, insecure=plain, tls_verify=_trusted(), auth_backend=kind)
        client.session = client.auth.session = _session(self._url, self._timeout)
        if challenge:
            self._authenticate(client, challenge)
        return client

    def _authenticate(self, client: Any, challenge: str) -> None:
        credentials = find_credentials(self._registry, self._docker_config)
        if credentials is None:
            raise self._failed(f"it asks for credentials, and there are none for {self._registry} in config.json")
        client.auth.set_basic_auth(credentials.user, credentials.password)
        if challenge.lower().startswith("bearer"):
            wanted = oras.auth.utils.parse_auth_header(challenge)
            wanted.scope = f"repository:{self._path}:pull,push"
            token = client.auth.request_token(wanted) if wanted.realm else None
            if not token:
                raise self._failed("it refused the credentials")
            client.auth.set_token_auth(token)

    def _push_blobs(self, client: Any, artifact: ModelArtifact) -> None:
        manifest = decode_manifest(artifact.manifest, self.name)
        container = oras.container.Container(self._path)
        container.registry = self._registry  # which oras does not recognise if it has neither dot nor port
        container.namespace, _, container.repository = self._path.rpartition("/")
        for descriptor, content in ((manifest.config, artifact.config), (manifest.layers[0], artifact.model)):
            layer = {"digest": descriptor.digest, "size": descriptor.size}
            with _file_in_memory(content) as path:
                self._check(client.upload_blob(path, container, layer), {200, 201, 202})

    def _push_manifest(self, client: Any, artifact: ModelArtifact, reference: str) -> None:
        url = f"{self._url}/v2/{self._path}/manifests/{reference}"
        headers = {"Content-Type": MANIFEST_TYPE}
        response = client.do_request(url, "PUT", data=artifact.manifest, headers=headers)
        self._check(response, {200, 201})
        stored = response.headers.get("Docker-Content-Digest", artifact.digest)
        if stored != artifact.digest:
            raise self._failed("it stored another digest than that of the version")

    def _check(self, response: requests.Response, expected: Collection[int]) -> None:
        if response.status_code not in expected:
            raise self._failed(f"it answered {response.status_code}")

    def _failed(self, why: str) -> PushFailed:
        return PushFailed(f"cannot push to {self.name}: {why}")


class _Denied(Exception):
    """The registry answered 401 or 403 to a request with credentials."""


class _Client(oras.provider.Registry):  # type: ignore[misc]  # oras has no types
    """oras without retries, and without following an upload to another host with the credentials."""

    def do_request(self, url: str, *arguments: Any, **options: Any) -> Any:
        if urlsplit(url)[:2] != (self.prefix, self.hostname):
            raise ValueError("an upload leads to another host")
        response = oras.provider.Registry.do_request.__wrapped__(self, url, *arguments, **options)
        if response.status_code in {401, 403}:
            raise _Denied(f"it answered {response.status_code}")
        return response


class _TimeoutAdapter(requests.adapters.HTTPAdapter):
    """Connections with a timeout for every request."""

    def __init__(self, timeout: float) -> None:
        super().__init__()
        self._timeout = timeout

    def send(self, *arguments: Any, **options: Any) -> requests.Response:
        return super().send(*arguments, **{**options, "timeout": self._timeout})


class _NoPlainHttp(requests.adapters.BaseAdapter):
    """Refuses requests without TLS, to which a registry or its authorization service may redirect."""

    def send(self, *_arguments: Any, **_options: Any) -> requests.Response:
        raise requests.exceptions.SSLError("a request without TLS")

    def close(self) -> None:
        pass


@contextmanager
def _file_in_memory(content: bytes) -> Iterator[str]:
    """A path for oras, which reads files only; the disk may be full."""
    with os.fdopen(os.memfd_create("blob"), "wb") as file:
        file.write(content)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _session(url: str, timeout: float) -> requests.Session:
    session = requests.Session()
    session.trust_env = False  # neither proxies nor credentials of .netrc
    session.verify = _trusted()
    session.mount("https://", _TimeoutAdapter(timeout))
    session.mount("http://", _TimeoutAdapter(timeout) if url.startswith("http:") else _NoPlainHttp())
    return session


def _trusted() -> str | bool:
    """The file of trusted certificates, as for other connections of vmafx."""
    return os.environ.get("SSL_CERT_FILE") or True
