"""A report to where it was asked for: a file, an object of a store, or an HTTP server that takes a PUT."""

from vmafx.scoring.media.policy import Policy
from vmafx.scoring.media.schemes import SCHEMES
from vmafx.scoring.media.uri import locate


async def deliver(uri: str, content: bytes, policy: Policy) -> str:
    """Put it there, and tell where in words fit for a result."""
    place = locate(uri, "options")
    policy.allow(place.scheme, "options")
    transfer = await SCHEMES[place.scheme].transfer()
    await transfer.put(place, content, policy)
    return place.shown
