"""OCI registries: references by digest, which registries are reached without TLS, and their credentials."""

import base64
import binascii
import re
from collections.abc import Collection
from pathlib import Path

import msgspec

from vmafx.scoring.errors import NodeFault
from vmafx.scoring.media.uri import Location

MAX_CONFIG_BYTES = 1 << 20
DOCKER_HUB = "docker.io"  # the name in references; its registry and its key in config.json have others
DOCKER_HUB_HOST = "registry-1.docker.io"
DOCKER_HUB_KEY = "https://index.docker.io/v1/"
_LOOPBACK = {"localhost", "127.0.0.1", "[::1]"}


class Reference(msgspec.Struct, frozen=True):
    """REGISTRY/REPOSITORY@DIGEST."""

    registry: str  # HOST or HOST:PORT
    repository: str
    digest: str

    @classmethod
    def of(cls, location: Location) -> "Reference":
        """From a location with the scheme oci."""
        name, _, digest = location.target.partition("@")
        registry, _, repository = name.partition("/")
        return cls(registry, repository, digest)


class RegistryLogin(msgspec.Struct, frozen=True):
    """User and password for a registry."""

    user: str
    password: str

    def __repr__(self) -> str:
        """Without the password, since errors and logs show this."""
        return f"RegistryLogin({self.user!r})"

    def basic(self) -> str:
        """The value of an Authorization header."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()


class _Entry(msgspec.Struct):
    auth: str = ""  # USER:PASSWORD in base64
    username: str = ""
    password: str = ""


class _DockerConfig(msgspec.Struct):
    auths: dict[str, _Entry] = {}


def url_of(registry: str, insecure: Collection[str]) -> str:
    """The base URL of a registry: https, but http on this machine and for those in `insecure`."""
    host = re.sub(r":[0-9]+\Z", "", registry)
    plain = host in _LOOPBACK or bool({registry, host} & set(insecure))
    return f"{'http' if plain else 'https'}://{DOCKER_HUB_HOST if registry == DOCKER_HUB else registry}"


def find_credentials(registry: str, folder: Path | None) -> RegistryLogin | None:
    """The credentials in the config.json of Docker in `folder`. Credential helpers are not run. Raises NodeFault."""
    try:
        path = folder.expanduser() / "config.json" if folder is not None else None
    except RuntimeError:  # the user has no home folder, as in some containers
        return None
    if path is None or not path.is_file():
        return None
    try:
        with path.open("rb") as file:
            auths = msgspec.json.decode(file.read(MAX_CONFIG_BYTES), type=_DockerConfig).auths
        entry = next((auths[key] for key in _keys(registry) if key in auths), None)
        return None if entry is None else _decode(entry)
    except OSError as error:
        raise NodeFault(f"cannot read the credentials of registries in {path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, binascii.Error):  # they may show a password
        raise NodeFault(f"{path} is not a config.json with credentials of registries") from None


def _keys(registry: str) -> tuple[str, ...]:
    """The names that tools give to a registry in config.json."""
    hub = (DOCKER_HUB_KEY,) if registry in {DOCKER_HUB, DOCKER_HUB_HOST} else ()
    return (*hub, registry, *(f"https://{registry}{path}" for path in ("", "/", "/v2/", "/v1/")), f"http://{registry}")


def _decode(entry: _Entry) -> RegistryLogin | None:
    if entry.auth:
        user, _, password = base64.b64decode(entry.auth, validate=True).decode().partition(":")
        return RegistryLogin(user, password)
    return RegistryLogin(entry.username, entry.password) if entry.username else None
