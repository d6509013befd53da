"""Cluster: VmafxJobs and VmafxNodes of one namespace, for tools."""

import hashlib
from collections import Counter

from vmafx.api.job import VmafxJobSpec
from vmafx.api.scoring import ScoringOptions
from vmafx.auth.callers import EVERYBODY, ServedCaller
from vmafx.fleet.errors import NoSuchJob, explain_errors
from vmafx.fleet.reader import RUNNING, FleetJob, FleetReader
from vmafx.fleet.rows import JobRow, NodeRow, job_row, node_row
from vmafx.fleet.submit import UNTYPED_JOBS, clip_uri, create_job, job_name_for, manifest, model_uri
from vmafx.kube import Client, ObjectKey, key_of
from vmafx.mcp.arguments import SubmitArguments
from vmafx.scoring.errors import BadInput, InputPart
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.media.uri import locate

CALLER_LABEL = "vmafx.dev/mcp-caller"  # on jobs that a caller with a name has submitted
ONLY_LOCAL = ("size", "shortest", "conform", "stretch", "damaged")


class Cluster:
    """What a caller may see: with authentication its own jobs, otherwise all of the namespace."""

    def __init__(self, client: Client, namespace: str, policy: MediaPolicy) -> None:
        self._client, self.namespace, self._policy = client, namespace, policy

    async def submit(self, arguments: SubmitArguments, caller: ServedCaller) -> JobRow:
        """Raises BadInput, FleetError, KubeError."""
        if len(arguments.clips) != 1:
            raise BadInput("options", "a job of the cluster has one distorted clip; submit a job for each")
        if unsupported := [name for name in ONLY_LOCAL if getattr(arguments, name)]:
            raise BadInput("options", f"jobs of the cluster do not support {', '.join(unsupported)}; use score instead")
        self._check_scheme(arguments.reference, "reference")
        self._check_scheme(arguments.clips[0], "distorted")
        arguments.score_options(arguments.model, arguments.backend, None)
        options = ScoringOptions(subsample=arguments.subsample, pooling=arguments.pooling, features=arguments.features)
        spec = VmafxJobSpec(
            clip_uri(arguments.reference),
            clip_uri(arguments.clips[0]),
            referenceFormat=arguments.referenceFormat,
            distortedFormat=arguments.distortedFormat,
            model=model_uri(arguments.model),
            backend=arguments.backend,
            options=options,
            priority=arguments.priority or 0,
        )
        labels = {CALLER_LABEL: label_of(caller)} if caller.owner != EVERYBODY else {}
        job = manifest(self.namespace, job_name_for(spec.distorted), labels, spec)
        created = await create_job(self._client, job, rename=True)
        return await self.job(created["metadata"]["name"], caller)

    async def job(self, name: str, caller: ServedCaller) -> JobRow:
        """Raises NoSuchJob, also for the job of another caller."""
        (found,) = await FleetReader(self._client, self.namespace).named_jobs([name])
        self._check_owner(found, caller)
        return job_row(found)

    async def jobs(self, caller: ServedCaller) -> list[JobRow]:
        """The newest first."""
        labels = f"{CALLER_LABEL}={label_of(caller)}" if caller.owner != EVERYBODY else ""
        found = await FleetReader(self._client, self.namespace).jobs(labels=labels)
        rows = [job_row(job) for job in found]
        return sorted(rows, key=lambda row: (row.created is not None, row.created, row.name), reverse=True)

    async def cancel(self, name: str, caller: ServedCaller) -> JobRow:
        await self.job(name, caller)
        key = ObjectKey(self.namespace, name)
        with explain_errors():
            await self._client.merge_patch(UNTYPED_JOBS, key, {"spec": {"cancel": True}})
        return await self.job(name, caller)

    async def nodes(self) -> list[NodeRow]:
        reader = FleetReader(self._client, self.namespace)
        nodes, running = await reader.nodes(), await reader.jobs(RUNNING)
        used = Counter(ObjectKey(job.metadata.namespace, job.status.assignedNode or "") for job in running)
        return [node_row(node, used[key_of(node)]) for node in sorted(nodes, key=key_of)]

    def _check_scheme(self, uri: str, part: InputPart) -> None:
        """Nodes have policies of their own; this one is that of the server."""
        self._policy.check_scheme(locate(uri, part).scheme, part)

    def _check_owner(self, job: FleetJob, caller: ServedCaller) -> None:
        if caller.owner != EVERYBODY and job.metadata.labels.get(CALLER_LABEL) != label_of(caller):
            raise NoSuchJob(f"job {job.metadata.name} not found in namespace {self.namespace}")


def label_of(caller: ServedCaller) -> str:
    """The name of a caller as the value of a label, which may not have all characters of names."""
    return hashlib.sha256(caller.owner.encode(errors="replace")).hexdigest()[:40]
