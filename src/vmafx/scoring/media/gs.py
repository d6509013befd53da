"""Access to Google Cloud Storage with gcsfs, from the extra `gcs`."""

from typing import Any

from gcsfs.core import GCSFileSystem  # the other implementations call a second API for each bucket
from gcsfs.retry import HttpError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from requests.exceptions import RequestException

from vmafx.scoring.media.object_store import NETWORK_ERRORS, ObjectStore, fetch_object, put_object
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.staging import StagedFile
from vmafx.scoring.media.uri import Location
from vmafx.tasks import in_thread


async def fetch(location: Location, staging: StagedFile) -> None:
    await fetch_object(_store(), location, staging)


async def put(location: Location, content: bytes, policy: MediaPolicy) -> None:
    await put_object(_store(), location, content, policy)


def _store() -> ObjectStore:
    def create() -> Any:
        return GCSFileSystem(asynchronous=True, skip_instance_cache=True, use_listings_cache=False)

    async def connect() -> tuple[Any, Any]:
        filesystem = await in_thread(create)  # looks for credentials, possibly over the network
        return filesystem, await filesystem._set_session()  # noqa: SLF001 - fsspec's async methods

    def denied(error: Exception) -> bool:
        if isinstance(error, HttpError):
            return error.code in {401, 403}
        # gcsfs raises a plain OSError for a 403; only its text differs from others.
        forbidden = type(error) is OSError and error.errno is None and str(error).startswith("Forbidden")
        return forbidden or isinstance(error, PermissionError | DefaultCredentialsError)

    return ObjectStore(
        connect,
        (*NETWORK_ERRORS, HttpError, GoogleAuthError, RequestException),
        denied,
        "set GOOGLE_APPLICATION_CREDENTIALS to the key file of an account with access",
    )
