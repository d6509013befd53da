"""Clips from Google's store. gcsfs is an extra."""

from typing import Any

from gcsfs.core import GCSFileSystem  # the plain one: others ask a second API about each bucket
from gcsfs.retry import HttpError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from requests.exceptions import RequestException

from vmafx.scoring.media.object_store import NETWORK, ObjectStore, fetch_object, put_object
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.staging import StagedFile
from vmafx.scoring.media.uri import Location
from vmafx.tasks import in_thread


async def fetch(place: Location, staging: StagedFile) -> None:
    await fetch_object(_store(), place, staging)


async def put(place: Location, content: bytes, policy: MediaPolicy) -> None:
    await put_object(_store(), place, content, policy)


def _store() -> ObjectStore:
    def files() -> Any:
        return GCSFileSystem(asynchronous=True, skip_instance_cache=True, use_listings_cache=False)

    async def connect() -> tuple[Any, Any]:
        made = await in_thread(files)  # looks for credentials, maybe over the network
        return made, await made._set_session()  # noqa: SLF001 fsspec's async names

    def denied(error: Exception) -> bool:
        if isinstance(error, HttpError):
            return error.code in {401, 403}
        # gcsfs makes of a 403 an OSError that only its text tells from others.
        plain = type(error) is OSError and error.errno is None and str(error).startswith("Forbidden")
        return plain or isinstance(error, PermissionError | DefaultCredentialsError)

    return ObjectStore(
        connect,
        (*NETWORK, HttpError, GoogleAuthError, RequestException),
        denied,
        "set GOOGLE_APPLICATION_CREDENTIALS to the key of an account that may read it",
    )
