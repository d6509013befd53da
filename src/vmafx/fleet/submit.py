"""Creates a job: its name, clip URIs that the fleet can reach, and the API call."""

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import msgspec

from vmafx.api.job import MAX_JOB_NAME, VmafxJob, VmafxJobSpec
from vmafx.api.meta import ObjectMeta
from vmafx.fleet.errors import JobRejected, NameTaken, explain_errors
from vmafx.kube import JOBS, Client
from vmafx.kube.errors import Unreachable
from vmafx.kube.resources import UntypedObject
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.uri import locate

UNTYPED_JOBS = JOBS.decoded_as(dict)
SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # Kubernetes' own: no vowels, so no words
MAX_NAME_TRIES = 5
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def job_name_for(distorted: str) -> str:
    """A job name derived from the clip's file name, with a random suffix."""
    stem = Path(unquote(re.split(r"[?#]", distorted, maxsplit=1)[0])).stem
    safe = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
    suffix = "".join(secrets.choice(SUFFIX_ALPHABET) for _ in range(5))
    return f"{safe[: MAX_JOB_NAME - 6].strip('-') or 'job'}-{suffix}"


def model_uri(text: str) -> str:
    """The name of a model as it is, a path or URI of a model as `clip_uri` has it.

    JobRejected for a model in a registry without its digest, with which no worker would score.
    """
    if scheme_of(text) == "oci":
        try:
            return locate(text, "model").display_name
        except BadInput as error:
            raise JobRejected(error.why) from None
    return clip_uri(text) if "/" in text or text.endswith(".json") else text


def scheme_of(text: str) -> str:
    """The scheme of a URI in lower case; empty if the text is not a URI."""
    match = _SCHEME.match(text)
    return match[1].lower() if match else ""


def clip_uri(text: str) -> str:
    """A URI as it is, an absolute path as a file URI; JobRejected for a relative path, which nodes cannot resolve."""
    if match := _SCHEME.match(text):
        return match[1].lower() + text[match.end(1) :]
    if text.startswith("/"):
        return Path(text).as_uri()
    raise JobRejected(
        f"{text!r} is a relative path, but jobs run on other machines; "
        "use a URI (https, s3, gs) or an absolute path that exists on the nodes"
    )


def manifest(namespace: str, name: str, labels: dict[str, str], spec: VmafxJobSpec) -> UntypedObject:
    """The job as it is sent to the API server."""
    job = VmafxJob(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels), spec=spec)
    fields: UntypedObject = msgspec.to_builtins(job)
    return {"apiVersion": fields.pop("apiVersion"), "kind": fields.pop("kind"), **fields}


async def create_job(client: Client, job: UntypedObject, *, rename: bool, dry_run: bool = False) -> UntypedObject:
    """Create the job and return it as the server stored it; `rename`: choose another name if its name is taken."""
    tries = MAX_NAME_TRIES if rename else 1
    while True:
        tries -= 1
        try:
            with explain_errors(), _explain_lost_reply(job, dry_run=dry_run):
                return await client.create(UNTYPED_JOBS, job, job["metadata"]["namespace"], dry_run=dry_run)
        except NameTaken:
            if not tries:
                raise
            job["metadata"]["name"] = job_name_for(job["spec"]["distorted"])


@contextmanager
def _explain_lost_reply(job: UntypedObject, *, dry_run: bool) -> Iterator[None]:
    """If the request was sent and no reply came, the job may exist: say how to check."""
    try:
        yield
    except Unreachable as error:
        if dry_run or not error.sent:
            raise
        check = f"vmafx jobs {job['metadata']['name']} -n {job['metadata']['namespace']}"
        raise Unreachable(f"{error}; the job may have been created anyway; check: {check}", sent=True) from error
