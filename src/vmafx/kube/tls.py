"""TLS contexts: the trusted certificate authority and the client certificate."""

import ssl
import tempfile

from vmafx.kube.errors import ConfigError


def trust_context(authority: bytes | None, origin: str) -> ssl.SSLContext:
    """A client context that trusts this certificate authority (PEM), or the system's if it is None."""
    try:
        if authority is None:
            context = ssl.create_default_context()
        else:
            # From a file: the string form of ssl rejects non-ASCII comments between certificates.
            with tempfile.NamedTemporaryFile() as file:
                file.write(authority)
                file.flush()
                context = ssl.create_default_context(cafile=file.name)
    except ssl.SSLError as error:
        raise ConfigError(f"{origin}: certificate-authority is not a PEM certificate: {error.reason}") from error
    # Go does not check this strictly either: a cluster that works with kubectl must work here.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, origin: str) -> None:
    """Add a client certificate. ssl reads keys only from files, hence the temporary file (mode 0600)."""

    def no_password() -> str:
        raise ConfigError(f"{origin}: client-key is encrypted; use an unencrypted key")

    with tempfile.NamedTemporaryFile() as pem:
        pem.write(certificate + b"\n" + key)
        pem.flush()
        try:
            context.load_cert_chain(pem.name, password=no_password)
        except ssl.SSLError as error:
            raise ConfigError(f"{origin}: client-certificate and client-key do not match: {error.reason}") from error
