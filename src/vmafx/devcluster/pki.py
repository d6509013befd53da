"""Keys, certificates and kubeconfigs of one cluster."""

import base64
import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID = timedelta(days=365)
SERVICE_IP = "10.96.0.1"  # of the Service kubernetes.default, the first of the range
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
SERVER_ADDRESSES = ("127.0.0.1", SERVICE_IP)
ADMIN = "kubeconfig"
USERS = {  # by kubeconfig: user and group
    ADMIN: ("vmafx-dev-admin", "system:masters"),
    "controller-manager.kubeconfig": ("system:kube-controller-manager", ""),
    "scheduler.kubeconfig": ("system:kube-scheduler", ""),
}
_CA_KEY_USAGE = x509.KeyUsage(
    key_cert_sign=True, crl_sign=True, digital_signature=False, content_commitment=False, key_encipherment=False,
    data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
)  # fmt: skip


class Authority:
    """A CA whose key exists only in memory."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("vmafx-dev-ca")
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        self._certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(constraints, critical=True)
            .add_extension(_CA_KEY_USAGE, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def server(self, *extra_addresses: str) -> tuple[bytes, bytes]:
        """Certificate and key for servers on loopback and `extra_addresses`."""
        addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in (*SERVER_ADDRESSES, *extra_addresses)]
        names = [x509.DNSName(name) for name in SERVER_NAMES]
        return self._issue(_name("vmafx-dev"), ExtendedKeyUsageOID.SERVER_AUTH, [*addresses, *names])

    def client(self, user: str, group: str = "") -> tuple[bytes, bytes]:
        """Client certificate and key of `user`, a member of `group`."""
        return self._issue(_name(user, group), ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def _issue(
        self, subject: x509.Name, usage: x509.ObjectIdentifier, names: list[x509.GeneralName]
    ) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._name, key).add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), private_pem(key)


def service_account_key() -> tuple[bytes, bytes]:
    """The private key that signs service account tokens, and its public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private_pem(key), public


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def write_secret(path: Path, content: bytes) -> Path:
    """Write a file that only its owner can read, from the first byte on."""
    path.touch(mode=0o600)
    path.write_bytes(content)
    return path


def _name(common: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + VALID)
    )


def write_credentials(folder: Path, server: str, *extra_addresses: str) -> Authority:
    """Create the keys, certificates and kubeconfigs of a new cluster, whose servers have `extra_addresses` too."""
    authority = Authority()
    (folder / "pki").mkdir(mode=0o700)
    certificate, key = authority.server(*extra_addresses)
    private, public = service_account_key()
    for name, content in {
        "ca.crt": authority.certificate,
        "server.crt": certificate,
        "server.key": key,
        "service-account.key": private,
        "service-account.pub": public,
    }.items():
        write_secret(folder / "pki" / name, content)
    for file, (user, group) in USERS.items():
        write_kubeconfig(folder / file, server, authority, user, group)
    return authority


def write_kubeconfig(path: Path, server: str, authority: Authority, user: str, group: str = "") -> None:
    """Create a client certificate for `user`, a member of `group`, in a kubeconfig."""
    client = authority.client(user, group)
    write_secret(path, _kubeconfig(server, path.parent.name, authority.certificate, *client))


def _kubeconfig(server: str, name: str, authority: bytes, certificate: bytes, key: bytes) -> bytes:
    def data(content: bytes) -> str:
        return base64.b64encode(content).decode()

    cluster = {"server": server, "certificate-authority-data": data(authority)}
    user = {"client-certificate-data": data(certificate), "client-key-data": data(key)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
    }
    return msgspec.yaml.encode(config)
