"""UploadFolder: clips and reports where this machine and a cluster both reach them, by digest."""

import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.media.access import OpenedMedia, open_media, stored_size, upload_file
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import SCHEMES, display_name, locate
from vmafx.tasks import in_thread

REMOTE_SCHEMES = ("s3", "gs", "http", "https")  # that workers fetch by themselves
STORES = ("s3", "gs")
NFS_DELAY = 75.0


class UploadFolder:
    """A folder that the cluster has at the same path, or a prefix in a store."""

    def __init__(self, uri: str, policy: MediaPolicy) -> None:
        """Raises BadInput for a URI that no files can be uploaded to."""
        location = locate(uri, "options")
        policy.check_scheme(location.scheme, "options")
        if not SCHEMES[location.scheme].takes_files:
            raise BadInput(
                "options",
                f"--upload {location.display_name} is neither a folder nor in a store; use s3://BUCKET/PREFIX, "
                "gs://BUCKET/PREFIX or a folder that the nodes have at the same path",
            )
        self._folder: Path | None = None
        if location.scheme in STORES:
            if "?" in uri or "#" in uri:
                raise BadInput("options", f"--upload {location.display_name} must not have a query or fragment")
            self.uri = uri.rstrip("/")
        else:
            self._folder = Path(location.target).absolute()
            self.uri = self._folder.as_uri()
            policy = msgspec.structs.replace(policy, outputs=(self._folder,))
        self.policy = policy

    def named(self, name: str) -> str:
        """The URI of a file in it."""
        return f"{self.uri}/{name}"

    async def check(self) -> None:
        """Raises ScoringError if files cannot be looked up in it."""
        if self._folder is not None and not await in_thread(self._folder.is_dir):
            raise BadInput(
                "options",
                f"--upload {self._folder} is not a folder; create it, at the same path on the nodes of the cluster",
            )
        await stored_size(self.named("check"), self.policy)

    def visible(self, uri: str) -> str | None:
        """The URI by which the cluster reaches a clip or model as it is; None if it has to be uploaded."""
        location = locate(uri, "options")
        if location.scheme in REMOTE_SCHEMES:
            scheme, _, rest = uri.partition("://")
            return f"{scheme.lower()}://{rest}"
        if self._folder is None or location.scheme != "file":
            return None
        path, folder = Path(location.target).resolve(), self._folder.resolve()
        return (self._folder / path.relative_to(folder)).as_uri() if path.is_relative_to(folder) else None

    async def put(self, name: str, file: OpenedMedia, on_share: Callable[[float], None] = lambda _: None) -> str:
        """Upload a file unless one of that name and size is there; returns its URI. `on_share` gets 0 to 1."""
        uri = self.named(name)
        if await stored_size(uri, self.policy) != file.size:
            await upload_file(uri, file.fd, self.policy, lambda done, total: on_share(done / (total or 1)))
        return uri

    @property
    def delay(self) -> float:
        """Seconds after which a file that another machine has written is seen here, even if it was looked for before.

        A client of NFS remembers for up to a minute that a file does not exist.
        """
        return NFS_DELAY if self._folder is not None else 0.0

    async def has(self, name: str) -> bool:
        return await stored_size(self.named(name), self.policy) is not None

    async def read(self, name: str, limit: int) -> bytes | None:
        """The content of a small file; None if there is none. Raises ScoringError, also above the limit."""
        uri = self.named(name)
        size = await stored_size(uri, self.policy)
        if size is None:
            return None
        if size > limit:
            raise NodeFault(f"{display_name(uri)} has {size:,} bytes, more than the limit of {limit:,}; delete it")
        policy = msgspec.structs.replace(self.policy, max_bytes=limit)
        async with open_media(uri, "options", policy) as opened:
            return await in_thread(_content, opened)


def _content(opened: OpenedMedia) -> bytes:
    with os.fdopen(opened.reopen(), "rb") as file:
        return file.read(opened.size)
