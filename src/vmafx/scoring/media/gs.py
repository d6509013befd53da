"""Access to Google Cloud Storage with gcsfs, from the extra `gcs`."""

import json
import os
from pathlib import Path
from typing import Any

from gcsfs.core import GCSFileSystem  # the other implementations call a second API for each bucket
from gcsfs.retry import HttpError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.oauth2 import credentials, service_account
from requests.exceptions import RequestException

from vmafx.scoring.media.object_store import (
    NETWORK_ERRORS,
    ObjectStore,
    fetch_object,
    object_size,
    put_object,
    put_object_file,
)
from vmafx.scoring.media.policy import CLOUD_IDENTITY, MediaPolicy
from vmafx.scoring.media.staging import FetchProgress, StagedFile
from vmafx.scoring.media.uri import Location
from vmafx.tasks import in_thread

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
KEY, KEY_FILE = "GOOGLE_APPLICATION_CREDENTIALS_JSON", "GOOGLE_APPLICATION_CREDENTIALS"
GOOGLE = {"token_uri": "https://oauth2.googleapis.com/token", "universe_domain": "googleapis.com"}
_DEFAULT_FILE = Path("~/.config/gcloud/application_default_credentials.json")  # of `gcloud auth`


async def fetch(location: Location, staging: StagedFile) -> None:
    await fetch_object(_store(staging.policy), location, staging)


async def put(location: Location, content: bytes, policy: MediaPolicy) -> None:
    await put_object(_store(policy), location, content, policy)


async def put_file(location: Location, fd: int, policy: MediaPolicy, progress: FetchProgress | None) -> None:
    await put_object_file(_store(policy), location, fd, policy, progress)


async def stored_size(location: Location, policy: MediaPolicy) -> int | None:
    return await object_size(_store(policy), location, policy)


def _store(policy: MediaPolicy) -> ObjectStore:
    def create() -> Any:
        token = _token(policy)
        return GCSFileSystem(asynchronous=True, skip_instance_cache=True, use_listings_cache=False, token=token)

    async def connect() -> tuple[Any, Any]:
        filesystem = await in_thread(create)  # looks for credentials, possibly over the network
        return filesystem, await filesystem._set_session()  # noqa: SLF001 - fsspec's async methods

    def denied(error: Exception) -> bool:
        if isinstance(error, HttpError):
            return error.code in {401, 403}
        # gcsfs raises a plain OSError for a 403; only its text differs from others.
        forbidden = type(error) is OSError and error.errno is None and str(error).startswith("Forbidden")
        return forbidden or isinstance(error, PermissionError | DefaultCredentialsError)

    remedy = f"set {KEY_FILE} to the key file of an account with access"
    if not policy.cloud_identity:
        remedy += f", or {CLOUD_IDENTITY}=true on the node to use its cloud identity"
    return ObjectStore(connect, (*NETWORK_ERRORS, HttpError, GoogleAuthError, RequestException), denied, remedy)


def _token(policy: MediaPolicy) -> Any:
    """What gcsfs authenticates with; None: it searches, and asks the metadata service. Raises PermissionError."""
    if key := os.environ.get(KEY):
        return _credentials(key, of_job=True)
    if policy.cloud_identity:
        return None
    if (path := _key_file()) is None:
        return "anon"  # sees public objects
    try:
        return _credentials(path.read_text())
    except OSError as error:
        raise PermissionError(f"cannot read {path}: {error.strerror}") from None


def _key_file() -> Path | None:
    if given := os.environ.get(KEY_FILE):
        return Path(given)
    try:
        path = _DEFAULT_FILE.expanduser()
    except RuntimeError:  # the user has no home folder, as in some containers
        return None
    return path if path.is_file() else None


def _credentials(content: str, *, of_job: bool = False) -> Any:
    """From the content of a key file. Other types than these obtain a cloud identity. Raises PermissionError.

    The key of a job goes to Google, whatever address it names.
    """
    try:
        fields = json.loads(content) | (GOOGLE if of_job else {})
        if fields["type"] == "service_account":
            return service_account.Credentials.from_service_account_info(fields, scopes=[SCOPE])  # type: ignore[no-untyped-call]
        if fields["type"] == "authorized_user":
            return credentials.Credentials.from_authorized_user_info(fields, scopes=[SCOPE])  # type: ignore[no-untyped-call]
    except (ValueError, TypeError, KeyError, RecursionError):  # they may show a part of the key
        raise PermissionError("not the key of a Google account") from None
    raise PermissionError("not the key of a service account or a user")
