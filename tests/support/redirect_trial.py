"""`vmafx serve`, and a public web server that redirects it to private addresses.

Both are in a network namespace in which a public address is local. Run it with the prefix of
network_namespace.isolation(): `python -m tests.support.redirect_trial FOLDER CLIPS` prints a TrialResult.
"""

import asyncio
import sys
from ipaddress import IPv4Network
from pathlib import Path

import msgspec

from tests.support.network_namespace import bring_up_loopback
from tests.support.serve_process import ServeProcess
from tests.support.webserver import WebServer, has, redirects

PUBLIC = "8.8.4.4"
PRIVATE = ("127.0.0.1", "10.20.30.40", "172.16.5.4", "192.168.7.8", "169.254.169.254", "100.64.1.2")


class TrialResult(msgspec.Struct):
    """Status and detail of each reply, by the address that the request was redirected to."""

    replies: dict[str, tuple[int, str]]
    private_connections: int


async def run_trial(folder: Path, clips: Path) -> TrialResult:
    everywhere = WebServer(address="0.0.0.0")  # noqa: S104 - of a namespace without a network
    server = ServeProcess(folder, roots=clips, VMAFX_MEDIA_ALLOW_PRIVATE="false")
    async with WebServer(address=PUBLIC) as public, everywhere as private, server:
        clip, replies = has((clips / "distorted.mp4").read_bytes()), {}
        targets = {PUBLIC: public.serve("/clip.mp4", clip, host=PUBLIC)}
        targets |= {host: private.serve("/clip.mp4", clip, host=host) for host in PRIVATE}
        for host, target in targets.items():
            uri = public.serve(f"/to-{host}.mp4", redirects(target), host=PUBLIC)
            reply = await server.score(clips / "reference.mkv", uri)
            replies[host] = (reply.status, reply.json().get("detail", ""))
        return TrialResult(replies, private.connections)


if __name__ == "__main__":
    bring_up_loopback(*(IPv4Network(address) for address in (PUBLIC, *PRIVATE[1:])))
    result = asyncio.run(run_trial(Path(sys.argv[1]), Path(sys.argv[2])))
    sys.stdout.write(msgspec.json.encode(result).decode())
