"""Clips from Google's store. gcsfs is an extra."""

from typing import Any

from gcsfs.core import GCSFileSystem  # the plain one: others ask a second API about each bucket
from gcsfs.retry import HttpError
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from requests.exceptions import RequestException

from vmafx.scoring.media.policy import Policy
from vmafx.scoring.media.schemes import Place
from vmafx.scoring.media.staging import Staging
from vmafx.scoring.media.store import NETWORK, Store, copy, deposit
from vmafx.threads import in_thread


async def fetch(place: Place, staging: Staging) -> None:
    await copy(_store(), place, staging)


async def put(place: Place, content: bytes, policy: Policy) -> None:
    await deposit(_store(), place, content, policy)


def _store() -> Store:
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

    return Store(
        connect,
        (*NETWORK, HttpError, GoogleAuthError, RequestException),
        denied,
        "set GOOGLE_APPLICATION_CREDENTIALS to the key of an account that may read it",
    )
