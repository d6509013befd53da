"""Clips from S3, and from what speaks as it does. s3fs is an extra."""

from typing import Any

import s3fs
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)

from vmafx.scoring.media.object_store import NETWORK, ObjectStore, fetch_object, put_object
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.staging import StagedFile
from vmafx.scoring.media.uri import Location
from vmafx.tasks import in_thread

_MISSING = (NoCredentialsError, PartialCredentialsError, ProfileNotFound)


async def fetch(place: Location, staging: StagedFile) -> None:
    await fetch_object(_store(staging.policy), place, staging)


async def put(place: Location, content: bytes, policy: MediaPolicy) -> None:
    await put_object(_store(policy), place, content, policy)


def _store(policy: MediaPolicy) -> ObjectStore:
    def files() -> Any:
        made = s3fs.S3FileSystem(
            asynchronous=True,
            skip_instance_cache=True,
            use_listings_cache=False,
            config_kwargs={
                "connect_timeout": policy.connect_seconds,
                "read_timeout": policy.stall_seconds,
                "retries": {"total_max_attempts": 1},  # ours are enough
            },
        )
        made.retries = 1
        return made

    async def connect() -> tuple[Any, Any]:
        made = await in_thread(files)
        return made, await made.set_session()

    return ObjectStore(
        connect,
        (*NETWORK, BotoCoreError, ClientError),
        lambda error: isinstance(error, (PermissionError, *_MISSING)),
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, to an account that may read it",
    )
