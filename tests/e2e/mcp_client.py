"""The official MCP client as a program beside the cluster: `python -m tests.e2e.mcp_client URL REFERENCE DISTORTED`.

Prints as JSON the names of the server's tools, the score of the clip, and the IDs of the jobs that the server knows.
"""

import asyncio
import json
import sys

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.support.mcp_server import HANDSHAKE, call


async def ask(url: str, reference: str, distorted: str) -> dict[str, object]:
    async with (
        httpx2.AsyncClient(timeout=120) as http,
        Client(streamable_http_client(url, http_client=http), mode=HANDSHAKE) as client,
    ):
        tools = [tool.name for tool in (await client.list_tools()).tools]
        scored = await call(client, "score", reference=reference, distorted=distorted)
        jobs = [job["id"] for job in (await call(client, "list_jobs"))["jobs"]]
        return {"tools": tools, "score": scored["score"]["clips"][0]["score"], "jobs": jobs}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(ask(*sys.argv[1:]))))  # noqa: T201
