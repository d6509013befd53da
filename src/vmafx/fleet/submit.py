"""Creates a job: its name, clip URIs that the fleet can reach, and the API call."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import msgspec

from vmafx.api.job import NAME_MAX, VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.fleet.errors import JobRejected, NameTaken, explain_errors
from vmafx.kube import JOBS, Client
from vmafx.kube.errors import Unreachable
from vmafx.kube.resources import UntypedObject

WHOLE_JOBS = JOBS.seen_as(dict)  # as the server has them, field by field
LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # of which no words are made
MAX_TRIES = 5
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def job_name_for(distorted: str) -> str:
    """A name for a job of this clip, unlike any other."""
    stem = Path(unquote(re.split(r"[?#]", distorted, maxsplit=1)[0])).stem
    safe = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
    suffix = "".join(secrets.choice(LETTERS) for _ in range(5))
    return f"{safe[: NAME_MAX - 6].strip('-') or 'job'}-{suffix}"


def model_uri(text: str) -> str:
    """A model by its name, or where the fleet finds it."""
    return clip_uri(text) if "/" in text or text.endswith(".json") else text


def scheme_of(text: str) -> str:
    """Of a URI; nothing for what is none."""
    found = _SCHEME.match(text)
    return found[1].lower() if found else ""


def clip_uri(text: str) -> str:
    """A file as a URI. A path that is not from the root would mean something else wherever the job runs."""
    if found := _SCHEME.match(text):
        return found[1].lower() + text[found.end(1) :]
    if text.startswith("/"):
        return Path(text).as_uri()
    raise JobRejected(
        f"{text!r} is a relative path, and jobs run on other machines; "
        "give a URI (https, s3, gs), or the absolute path at which the workers find it"
    )


def manifest(namespace: str, name: str, labels: dict[str, str], spec: VmafxJobSpec) -> UntypedObject:
    """The job, as it is handed in."""
    job = VmafxJob(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels), spec=spec)
    made: UntypedObject = msgspec.to_builtins(job)
    return {"apiVersion": made.pop("apiVersion"), "kind": made.pop("kind"), **made}


async def create_job(client: Client, job: UntypedObject, *, another_name: bool, dry_run: bool = False) -> UntypedObject:
    """Create the job; `another_name`: it may be called otherwise if its name is taken."""
    tries = MAX_TRIES if another_name else 1
    while True:
        tries -= 1
        try:
            with explain_errors(), _unsure(job, dry_run=dry_run):
                return await client.create(WHOLE_JOBS, job, job["metadata"]["namespace"], dry_run=dry_run)
        except NameTaken:
            if not tries:
                raise
            job["metadata"]["name"] = job_name_for(job["spec"]["distorted"])


@contextmanager
def _unsure(job: UntypedObject, *, dry_run: bool) -> Iterator[None]:
    """When the answer is lost, nobody knows whether the job was made; but it can be looked up."""
    try:
        yield
    except Unreachable as error:
        if dry_run or not error.sent:
            raise
        look = f"vmafx jobs {job['metadata']['name']} -n {job['metadata']['namespace']}"
        raise Unreachable(f"{error}; the job may have been created anyway; check: {look}", sent=True) from error
