"""The TLS certificates that a server presents and accepts, reloaded when their files change."""

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vmafx.kube.errors import ConfigError
from vmafx.logs import log

if TYPE_CHECKING:
    import grpc


class _Loaded(msgspec.Struct, frozen=True, eq=False):
    certificate: bytes
    key: bytes
    authority: bytes | None
    context: ssl.SSLContext

    def for_grpc(self) -> "grpc.ServerCertificateConfiguration":
        import grpc  # noqa: PLC0415 - roles that speak only HTTP do without it

        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], self.authority)


class Certificates:
    """Of files, which are looked at again for every connection. ConfigError if they are of no use at the start."""

    def __init__(self, certificate: str, key: str, client_authority: str = "") -> None:
        self._certificate, self._key, self._authority = certificate, key, client_authority
        self._seen = self._stamps()
        self._loaded = self._load()

    def for_grpc(self) -> "grpc.ServerCredentials":
        """With a client authority, nobody comes in without a certificate of it: grpc cannot ask without requiring."""
        import grpc  # noqa: PLC0415 - as above

        shown = first = self._loaded

        def renewed() -> "grpc.ServerCertificateConfiguration | None":
            nonlocal shown
            if (now := self._current()) is shown:
                return None
            shown = now
            return now.for_grpc()

        # None for "as before" is right, and not in grpc's types.
        return grpc.dynamic_ssl_server_credentials(first.for_grpc(), renewed, bool(self._authority))  # type: ignore[arg-type]

    def for_http(self) -> ssl.SSLContext:
        """Clients may show a certificate of the authority; probes, which have none, come in too."""
        context = self._loaded.context

        def choose(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
            connection.context = self._current().context

        context.sni_callback = choose  # also where no name is asked for
        return context

    def _current(self) -> _Loaded:
        """As the files are now; while they do not fit together, as they were."""
        if (stamps := self._stamps()) != self._seen:
            self._seen = stamps
            try:
                self._loaded = self._load()
                log.info("a certificate was renewed", file=self._certificate)
            except ConfigError as error:
                log.warn("a new certificate cannot be used; the one before stays", error=str(error))
        return self._loaded

    def _stamps(self) -> list[tuple[int, int] | None]:
        return [_stamp(path) for path in (self._certificate, self._key, self._authority)]

    def _load(self) -> _Loaded:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self._certificate, self._key, password="")
            if self._authority:
                context.load_verify_locations(self._authority)
                context.verify_mode = ssl.CERT_OPTIONAL
            authority = Path(self._authority).read_bytes() if self._authority else None
            return _Loaded(Path(self._certificate).read_bytes(), Path(self._key).read_bytes(), authority, context)
        except OSError as error:  # an SSLError is one
            why = getattr(error, "reason", "") or error.strerror
            files = f"{self._certificate}, {self._key} and {self._authority or 'no client CA'}"
            raise ConfigError(f"cannot use {files}: {why}") from error


def _stamp(path: str) -> tuple[int, int] | None:
    """What changes with a file: also where a link leads elsewhere, as in a mounted Secret."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino
