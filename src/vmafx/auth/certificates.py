"""The TLS certificates that a server presents and accepts, reloaded when their files change."""

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vmafx.kube.errors import ConfigError
from vmafx.logs import log

if TYPE_CHECKING:
    import grpc


class _LoadedFiles(msgspec.Struct, frozen=True, eq=False):
    certificate: bytes
    key: bytes
    client_ca: bytes | None
    context: ssl.SSLContext

    def for_grpc(self) -> "grpc.ServerCertificateConfiguration":
        import grpc  # noqa: PLC0415 - roles that serve only HTTP do not load it

        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], self.client_ca)


class Certificates:
    """Certificate, key and client CA, checked for changes at every connection; ConfigError if they cannot be loaded."""

    def __init__(self, certificate: str, key: str, client_ca: str = "") -> None:
        self._certificate, self._key, self._client_ca = certificate, key, client_ca
        self._stamps = self._read_stamps()
        self._loaded = self._load()

    def for_grpc(self) -> "grpc.ServerCredentials":
        """With a client CA, every caller needs a client certificate: grpc cannot make it optional."""
        import grpc  # noqa: PLC0415 - as above

        configured = initial = self._loaded

        def reload() -> "grpc.ServerCertificateConfiguration | None":
            nonlocal configured
            if (current := self._current()) is configured:
                return None
            configured = current
            return current.for_grpc()

        # grpc accepts None for "unchanged", but its type hints do not.
        return grpc.dynamic_ssl_server_credentials(initial.for_grpc(), reload, bool(self._client_ca))  # type: ignore[arg-type]

    def for_http(self) -> ssl.SSLContext:
        """A client certificate is optional, since the kubelet's probes have none."""
        context = self._loaded.context

        def use_current(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            connection.context = self._current().context

        context.sni_callback = use_current  # called for clients without SNI too
        return context

    def _current(self) -> _LoadedFiles:
        """Reload the files if they changed; the previous ones stay in use while the new ones cannot be loaded."""
        if (stamps := self._read_stamps()) != self._stamps:
            self._stamps = stamps
            try:
                self._loaded = self._load()
                log.info("certificate reloaded", file=self._certificate)
            except ConfigError as error:
                log.warn("could not reload the certificate; the previous one stays in use", error=str(error))
        return self._loaded

    def _read_stamps(self) -> list[tuple[int, int] | None]:
        return [_stamp(path) for path in (self._certificate, self._key, self._client_ca)]

    def _load(self) -> _LoadedFiles:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._certificate, self._key, password="")
            if self._client_ca:
                context.load_verify_locations(self._client_ca)
                context.verify_mode = ssl.CERT_OPTIONAL
            client_ca = Path(self._client_ca).read_bytes() if self._client_ca else None
            return _LoadedFiles(Path(self._certificate).read_bytes(), Path(self._key).read_bytes(), client_ca, context)
        except OSError as error:  # includes ssl.SSLError
            reason = getattr(error, "reason", "") or error.strerror
            files = f"{self._certificate}, {self._key} and {self._client_ca or 'no client CA'}"
            raise ConfigError(f"cannot use {files}: {reason}") from error


def configured_certificates(certificate: str, key: str, *, auth: str) -> Certificates | None:
    """Those of --tls-cert and --tls-key; None without TLS. Raises ConfigError if only one of them is set."""
    if not certificate and not key:
        if auth != "none":
            log.warn("keys and tokens are sent without TLS; set --tls-cert and --tls-key, or use a proxy with TLS")
        return None
    if not certificate or not key:
        raise ConfigError("--tls-cert and --tls-key must be set together")
    return Certificates(certificate, key)


def _stamp(path: str) -> tuple[int, int] | None:
    """Modification time and inode, which also change when a symbolic link is switched, as in a mounted Secret."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
