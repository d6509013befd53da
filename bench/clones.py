"""Copies of a job, written to etcd directly: thousands per second, where the API server would take minutes."""

import asyncio
import base64
from contextlib import suppress

import aiohttp
import msgspec
from bench.contest import NAMESPACE, READY_WITHIN

from vmafx.api.job import JobView, VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.devcluster import DevCluster
from vmafx.kube import JOBS, Client, ObjectKey, load_config
from vmafx.kube.errors import ServerError

ORIGINAL = ObjectKey(NAMESPACE, "job-000000")


async def create_job(client: Client, key: ObjectKey) -> VmafxJob:
    """Create a job through the API."""
    spec = VmafxJobSpec(
        reference="s3://corpus/park/reference.mp4", distorted="s3://corpus/park/h264-2mbit.mp4", backend="cpu"
    )
    return await client.create(JOBS, VmafxJob(metadata=ObjectMeta(name=key.name), spec=spec), key.namespace)


async def clone_jobs(cluster: DevCluster, first: int, count: int) -> None:
    """Write copies of ORIGINAL to etcd, each with its own name and uid."""
    prefix = "/registry/vmafx.dev/vmafxjobs/default/"
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(cluster.folder / "client:0"))) as session:
        stored = await _etcd(session, "range", {"key": _b64(f"{prefix}{ORIGINAL.name}".encode())})
        value = base64.b64decode(stored["kvs"][0]["value"])
        uid = msgspec.json.decode(value)["metadata"]["uid"].encode()
        for start in range(first, first + count, 100):
            puts = []
            for number in range(start, min(start + 100, first + count)):
                name = f"job-{number:06}".encode()
                copy = value.replace(ORIGINAL.name.encode(), name).replace(uid, uid[:24] + f"{number:012x}".encode())
                puts.append({"requestPut": {"key": _b64(prefix.encode() + name), "value": _b64(copy)}})
            await _etcd(session, "txn", {"success": puts})


async def all_served(cluster: DevCluster, count: int) -> None:
    """Wait until the API server lists the clones; its first list costs more and must not be measured."""
    async with asyncio.timeout(READY_WITHIN), Client(load_config(cluster.kubeconfig)) as client:
        while True:
            with suppress(ServerError):  # its cache is still behind etcd
                if len((await client.list(JOBS.decoded_as(JobView), NAMESPACE)).items) >= count:
                    return
            await asyncio.sleep(1)


async def _etcd(session: aiohttp.ClientSession, call: str, body: object) -> dict[str, list[dict[str, str]]]:
    async with session.post(f"http://etcd/v3/kv/{call}", data=msgspec.json.encode(body)) as response:
        response.raise_for_status()
        return msgspec.json.decode(await response.read(), type=dict)


def _b64(content: bytes) -> str:
    return base64.b64encode(content).decode()
