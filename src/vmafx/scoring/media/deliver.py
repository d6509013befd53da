"""A report to where it was asked for: a file, an object of a store, or an HTTP server that takes a PUT."""

import errno
from pathlib import Path

from vmafx.atomic_write import put_whole
from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.media.policy import Policy
from vmafx.scoring.media.uri import Place, locate
from vmafx.threads import in_thread

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS}


async def deliver(uri: str, content: bytes, policy: Policy) -> str:
    """Put it there, and tell where in words fit for a result."""
    place = locate(uri, "options")
    policy.allow(place.scheme, "options")
    match place.scheme:
        case "file":
            await in_thread(_to_file, place, content, policy)
        case "http" | "https":
            from vmafx.scoring.media.web import put  # noqa: PLC0415 - who writes files pays for no HTTP client

            await put(place, content, policy)
        case _:
            from vmafx.scoring.media.store import put as put_object  # noqa: PLC0415

            await put_object(place, content, policy)
    return place.shown


def _to_file(place: Place, content: bytes, policy: Policy) -> None:
    path = Path(place.target)
    try:
        folder = path.parent.resolve(strict=True)
        if policy.roots and not any(folder.is_relative_to(root.resolve()) for root in policy.roots):
            raise BadInput("options", f"output {place.shown} lies outside the folders that VMAFX_MEDIA_ROOTS allows")
        put_whole(folder / path.name, content)
    except OSError as error:
        why = f"output {place.shown} cannot be written: {error.strerror}"
        raise (NodeFault(why) if error.errno in FULL else BadInput("options", why)) from None
