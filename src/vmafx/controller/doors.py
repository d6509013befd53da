"""Who may come in."""

from typing import NamedTuple, Protocol


class Presented(NamedTuple):
    """What a caller shows of itself."""

    token: str = ""  # without "Bearer "
    user: str = ""  # from a verified client certificate (CN)
    groups: tuple[str, ...] = ()  # its O's
    peer: str = ""  # for logs and limits


class Caller(NamedTuple):
    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()


class Doors(Protocol):
    async def who(self, presented: Presented) -> Caller:
        """Who it is; Refused if nobody knows."""
        ...

    async def admit(
        self, presented: Presented, verb: str, resource: str, namespace: str, name: str = "", subresource: str = ""
    ) -> Caller:
        """Who it is, if they may; Refused if not."""
        ...


class InsecureDoors:
    """Everybody may do everything: for development, and for networks where nobody else is."""

    async def who(self, presented: Presented) -> Caller:
        return Caller("anonymous")

    async def admit(
        self, presented: Presented, verb: str, resource: str, namespace: str, name: str = "", subresource: str = ""
    ) -> Caller:
        return Caller("anonymous")
