"""Requests to a scoring server of the cluster without a pause: `python -m tests.e2e.load URL FOLDER COUNT [GATEWAY]`.

Runs where names of the cluster resolve. With COUNT 0 it uploads the clips of the folder, one request at a time, until
it is ended; else it asks that many times which model answers. Each request has a connection of its own, which the
Service gives to one of the Pods. With GATEWAY (HOST:PORT) the requests go there, as if the name in the URL resolved to
it, over connections that stay open: a gateway splits requests. Prints scores and failures as lines of JSON, and at the
end how many requests each model answered.
"""

import asyncio
import json
import signal
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from tests.e2e.clips import DISTORTED, REFERENCE

PARALLEL = 8
TIMEOUT = aiohttp.ClientTimeout(total=90)
OK = 200


class Load:
    def __init__(self, url: str, folder: Path, count: int, gateway: str = "") -> None:
        self._url, self._headers = (f"http://{gateway}", {"Host": urlsplit(url).netloc}) if gateway else (url, {})
        self._folder, self._left, self._count = folder, count, count
        self._closing = not gateway  # connections, after each request
        self.models: Counter[str] = Counter()
        self.stopped = False

    async def run(self) -> None:
        connector = aiohttp.TCPConnector(force_close=self._closing)
        async with aiohttp.ClientSession(connector=connector, timeout=TIMEOUT, headers=self._headers) as session:
            await asyncio.gather(*(self._work(session) for _ in range(PARALLEL if self._count else 1)))

    async def _work(self, session: aiohttp.ClientSession) -> None:
        while self._left > 0 if self._count else not self.stopped:
            self._left -= 1
            try:
                self.models[await (self._ask(session) if self._count else self._score(session))] += 1
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                print(json.dumps({"error": repr(error)}), flush=True)  # noqa: T201

    async def _ask(self, session: aiohttp.ClientSession) -> str:
        async with session.get(f"{self._url}/v1/models") as response:
            if response.status != OK:
                raise ValueError(f"{response.status}: {await response.text()}")
            return str((await response.json())["models"][0]["name"])

    async def _score(self, session: aiohttp.ClientSession) -> str:
        """Upload both clips, and return the model that scored them."""
        form = aiohttp.FormData()
        for field, name in (("reference", REFERENCE), ("distorted", DISTORTED)):
            form.add_field(field, (self._folder / name).read_bytes(), filename=name)
        async with session.post(f"{self._url}/v1/score", data=form, headers={"Prefer": "wait=60"}) as response:
            if response.status != OK:
                raise ValueError(f"{response.status}: {await response.text()}")
            body = await response.json()
            print(json.dumps({"model": body["model"], "score": body["score"]}), flush=True)  # noqa: T201
            return str(body["model"])


async def main() -> None:
    load = Load(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])

    def stop() -> None:
        load.stopped = True

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await load.run()
    print(json.dumps({"models": load.models}), flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
