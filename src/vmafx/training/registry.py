"""Pushes versions of a model to an OCI registry, with oras.

oras-py has no timeouts, sleeps for minutes between its retries and encodes manifests in its own way. Here, a push has a
deadline, every request is sent once, since the trainer tries again itself, responses have a size limit, and the
manifest's bytes are ours.
"""

import logging
import os
import socket
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import oras.auth.utils
import oras.container
import oras.provider
import requests
import requests.adapters

from vmafx.logs import log
from vmafx.scoring.artifact import MANIFEST_TYPE, ModelArtifact, decode_manifest
from vmafx.scoring.errors import NodeFault
from vmafx.scoring.media.registries import find_credentials, url_of

TIMEOUT = 30.0  # seconds to connect, and without a byte
DEADLINE = 120.0  # seconds for a push, which is some kilobytes in a dozen requests
MAX_RESPONSE_BYTES = 1 << 20
TEMPORARY = {401, 403, 408, 429}  # with these, a registry may accept the same tag later
_REASONS: tuple[tuple[type[Exception], str], ...] = (  # the first match applies
    (requests.exceptions.SSLError, "its TLS certificate is not trusted, or it does not speak TLS"),
    (requests.exceptions.Timeout, "it does not answer in time"),
    (requests.exceptions.ConnectionError, "cannot connect to it"),
)
_UNEXPECTED = (ValueError, TypeError, AttributeError, LookupError)  # what oras raises for odd responses
logging.getLogger("oras.logger").disabled = True  # PushFailed reports the error


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
        deadline: float = DEADLINE,
    ) -> None:
        """`name` is REGISTRY/PATH. `docker_config` is a folder with a config.json, read again for every push."""
        self.name = name
        self._registry, _, self._path = name.partition("/")
        self._url = url_of(self._registry, insecure)
        self._host = urlsplit(self._url).netloc
        self._docker_config, self._timeout, self._deadline = docker_config, timeout, deadline
        self._sockets = _Sockets()
        self._closed = False

    def push(self, artifact: ModelArtifact, number: int) -> None:
        """Push a version, and tag it as v<number> and latest. May be repeated. Raises PushFailed."""
        self._sockets = sockets = _Sockets()
        if self._closed:
            raise self._failed("the trainer is stopping")
        timer = threading.Timer(self._deadline, sockets.shut_down)
        timer.daemon = True
        timer.start()
        try:
            self._push(artifact, number)
        except PushFailed:
            if sockets.are_down:
                raise self._failed("the trainer is stopping" if self._closed else self._late()) from None
            raise
        finally:
            timer.cancel()

    def close(self) -> None:
        """End the push in progress, and refuse others. For another thread than that of the push."""
        self._closed = True
        self._sockets.shut_down()

    def _late(self) -> str:
        return f"the push did not complete within {self._deadline:g} s"

    def _push(self, artifact: ModelArtifact, number: int) -> None:
        try:
            client = self._connect()
            self._push_blobs(client, artifact)
            self._check(self._push_manifest(client, artifact, artifact.digest), {200, 201})
            for tag in (f"v{number}", "latest"):
                self._tag(client, artifact, tag)
        except NodeFault as error:
            raise self._failed(str(error)) from None
        except _Denied as error:
            raise self._failed(f"it refused the credentials, or they do not allow to push ({error})") from None
        except (OSError, *_UNEXPECTED) as error:  # the messages contain URLs with upload tokens
            reasons = (reason for kind, reason in _REASONS if isinstance(error, kind))
            raise self._failed(next(reasons, "unexpected response")) from None

    def _connect(self) -> Any:
        """A client that has the credentials which the registry asks for."""
        with self._session() as session:
            response = session.get(f"{self._url}/v2/")
        if response.status_code not in {200, 401}:
            self._check(response, {200})
        challenge = response.headers.get("WWW-Authenticate", "") if response.status_code == 401 else ""
        kind = "basic" if challenge.lower().startswith("basic") else "token"
        plain = self._url.startswith("http:")
        client = _Client(self._host, insecure=plain, tls_verify=_trusted(), auth_backend=kind)
        client.session = client.auth.session = self._session()
        if challenge:
            self._authenticate(client, challenge)
        return client

    def _session(self) -> requests.Session:
        session = requests.Session()
        session.trust_env = False  # neither proxies nor credentials of .netrc
        session.verify = _trusted()
        adapter = _LimitedAdapter(self._timeout, self._sockets)
        session.mount("https://", adapter)
        session.mount("http://", adapter if self._url.startswith("http:") else _NoPlainHttp())
        return session

    def _authenticate(self, client: Any, challenge: str) -> None:
        credentials = find_credentials(self._registry, self._docker_config)
        if credentials is None:
            raise self._failed(f"it requires credentials, and config.json has none for {self._registry}")
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
        container.registry = self._host  # which oras does not recognise if it has neither dot nor port
        container.namespace, _, container.repository = self._path.rpartition("/")
        for descriptor, content in ((manifest.config, artifact.config), (manifest.layers[0], artifact.model)):
            layer = {"digest": descriptor.digest, "size": descriptor.size}
            with _file_in_memory(content) as path:
                self._check(client.upload_blob(path, container, layer), {200, 201, 202})

    def _tag(self, client: Any, artifact: ModelArtifact, tag: str) -> None:
        """The version is stored already: a tag that the registry refuses, such as an immutable one, is not needed."""
        response = self._push_manifest(client, artifact, tag)
        if 400 <= response.status_code < 500 and response.status_code not in TEMPORARY:
            log.warn("the registry refused a tag", repository=self.name, tag=tag, status=response.status_code)
        else:
            self._check(response, {200, 201})

    def _push_manifest(self, client: Any, artifact: ModelArtifact, reference: str) -> requests.Response:
        url = f"{self._url}/v2/{self._path}/manifests/{reference}"
        headers = {"Content-Type": MANIFEST_TYPE}
        response: requests.Response = client.do_request(url, "PUT", data=artifact.manifest, headers=headers)
        stored = response.headers.get("Docker-Content-Digest", artifact.digest)
        if response.ok and stored != artifact.digest:
            raise self._failed("it stored a different digest")
        return response

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


class _Sockets:
    """The sockets of a push, which another thread can shut down to end it: timeouts apply to single reads only."""

    def __init__(self) -> None:
        self.are_down = False
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()

    def add(self, opened: socket.socket) -> None:
        with self._lock:
            self._open.append(opened)
        if self.are_down:
            self.shut_down()

    def shut_down(self) -> None:
        with self._lock:
            self.are_down = True
            for one in self._open:
                with suppress(OSError):  # it is closed already
                    socket.socket.shutdown(one, socket.SHUT_RDWR)  # without TLS, which the other thread uses


class _LimitedAdapter(requests.adapters.HTTPAdapter):
    """Connections with a timeout, a limit for the size of responses, and sockets that are known to `sockets`."""

    def __init__(self, timeout: float, sockets: _Sockets) -> None:
        self._timeout, self._sockets = timeout, sockets
        super().__init__()

    def get_connection_with_tls_context(self, *arguments: Any, **options: Any) -> Any:
        pool: Any = super().get_connection_with_tls_context(*arguments, **options)
        sockets, kind = self._sockets, type(pool).ConnectionCls

        class Connection(kind):  # type: ignore[misc, valid-type]
            def connect(self) -> None:
                super().connect()
                sockets.add(self.sock)

        pool.ConnectionCls = Connection
        return pool

    def send(self, *arguments: Any, **options: Any) -> requests.Response:
        response = super().send(*arguments, **{**options, "timeout": self._timeout, "stream": True})
        content = bytearray()
        for chunk in response.iter_content(1 << 14):
            content += chunk
            if len(content) > MAX_RESPONSE_BYTES:
                response.close()
                raise ValueError("the response is too large")
        response._content = bytes(content)  # noqa: SLF001 - requests has no limit itself
        return response


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


def _trusted() -> str | bool:
    """The file of trusted certificates, as for other connections of vmafx."""
    return os.environ.get("SSL_CERT_FILE") or True
