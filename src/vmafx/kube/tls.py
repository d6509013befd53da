"""TLS contexts: whom we trust, and how we show who we are."""

import ssl
import tempfile

from vmafx.kube.errors import ConfigError


def trust_context(authority: bytes | None, origin: str) -> ssl.SSLContext:
    """Trust this authority (PEM), or the machine's if there is none."""
    try:
        if authority is None:
            context = ssl.create_default_context()
        else:
            # From a file: unlike a string, that may have comments in any language between its certificates.
            with tempfile.NamedTemporaryFile() as file:
                file.write(authority)
                file.flush()
                context = ssl.create_default_context(cafile=file.name)
    except ssl.SSLError as error:
        raise ConfigError(f"{origin}: certificate-authority is no PEM certificate: {error.reason}") from error
    # Strictness that Go has not: clusters whose certificates work with kubectl work with us.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, origin: str) -> None:
    """Use a client certificate. ssl reads a key from a file only: one that none but us can open, while that takes."""

    def no_password() -> str:
        raise ConfigError(f"{origin}: client-key is encrypted; give one that is not")

    with tempfile.NamedTemporaryFile() as pem:
        pem.write(certificate + b"\n" + key)
        pem.flush()
        try:
            context.load_cert_chain(pem.name, password=no_password)
        except ssl.SSLError as error:
            raise ConfigError(f"{origin}: client certificate and key do not fit: {error.reason}") from error
