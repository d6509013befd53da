"""Access to Amazon S3 and compatible stores with s3fs, from the extra `s3`."""

from typing import Any

import s3fs
from aiobotocore.session import AioSession
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
)

from vmafx.scoring.media.address_guard import AddressGuard
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

_CREDENTIAL_ERRORS = (NoCredentialsError, PartialCredentialsError, ProfileNotFound)
# botocore's sources of credentials that belong to the machine or Pod: EC2; ECS and EKS Pod Identity; EKS IRSA.
_CLOUD_SOURCES = ("iam-role", "container-role", "assume-role-with-web-identity")


async def fetch(location: Location, staging: StagedFile) -> None:
    await fetch_object(_store(staging.policy), location, staging)


async def put(location: Location, content: bytes, policy: MediaPolicy) -> None:
    await put_object(_store(policy), location, content, policy)


async def put_file(location: Location, fd: int, policy: MediaPolicy, progress: FetchProgress | None) -> None:
    await put_object_file(_store(policy), location, fd, policy, progress)


async def stored_size(location: Location, policy: MediaPolicy) -> int | None:
    return await object_size(_store(policy), location, policy)


def _store(policy: MediaPolicy) -> ObjectStore:
    guard = AddressGuard(private=policy.private or not policy.endpoint_of_job)

    def create() -> Any:
        filesystem = s3fs.S3FileSystem(
            session=_session(policy),
            asynchronous=True,
            skip_instance_cache=True,
            use_listings_cache=False,
            config_kwargs={
                "connect_timeout": policy.connect_seconds,
                "read_timeout": policy.stall_seconds,
                "retries": {"total_max_attempts": 1},  # vmafx retries
                "connector_args": {"socket_factory": guard},
                # The guard cannot check the connections of a proxy.
                **({"proxies": {}} if policy.endpoint_of_job and not policy.private else {}),
            },
        )
        filesystem.retries = 1
        return filesystem

    async def connect() -> tuple[Any, Any]:
        filesystem = await in_thread(create)
        return filesystem, await filesystem.set_session()

    remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, to an account with access"
    if not policy.cloud_identity:
        remedy += f", or {CLOUD_IDENTITY}=true on the node to use its cloud identity"
    return ObjectStore(
        connect,
        (*NETWORK_ERRORS, BotoCoreError, ClientError),
        lambda error: isinstance(error, (PermissionError, *_CREDENTIAL_ERRORS)),
        remedy,
        guard,
    )


def _session(policy: MediaPolicy) -> AioSession:
    session = AioSession()
    if not policy.cloud_identity:
        sources = session.get_component("credential_provider")
        for name in _CLOUD_SOURCES:
            sources.remove(name)
    return session
