"""The Go contestant and its variants: one program, whose environment variables select a variant (peer-go/variants.go).

"Unfinished only" caches unfinished jobs only. The other variants do as our operator does in one respect each, so that
a benchmark can measure what that costs:

- JSON: sends and watches Pods as JSON instead of protobuf
- our Pods: creates Pods with all fields that ours sets
- our status: writes all fields of a job's status that ours writes, including conditions
- fence: writes the placement before it creates the Pod, and only if the job has not changed since it was read
- our events: writes an event for each score, within the rate limit of ours
- all: all of these

The driver watches Pods as JSON, and the API server encodes an event once for all watches of the same encoding. So JSON
costs less here than in a cluster, where most programs watch Pods as protobuf.
"""

import msgspec

from vmafx.api.job import JobView
from vmafx.api.meta import MetaView
from vmafx.api.node import NodeView, VmafxNodeSpec
from vmafx.operator.job.pod import PodSettings, make_pod
from vmafx.operator.job.settings import JobSettings
from vmafx.settings import from_environ

GO, GO_UNFINISHED, GO_ALL = "Go", "Go, unfinished only", "Go, all"
WORKER_IMAGE = "vmafx-worker:bench"


def our_pod() -> str:
    """A Pod of our operator as JSON, with {job}, {uid} and so on in place of the values of a job."""
    spec = {"reference": "{reference}", "distorted": "{distorted}", "model": "{model}", "backend": "cpu"}
    job = msgspec.convert({"metadata": {"name": "{job}", "uid": "{uid}"}, "spec": spec}, JobView)
    node = NodeView(MetaView(name="{node}"), VmafxNodeSpec(gpuVendor="cpu", image=WORKER_IMAGE))
    settings = from_environ(JobSettings)
    pod_settings = PodSettings(
        settings.worker_image,
        cpu_request=settings.worker_cpu_request,
        memory_request=settings.worker_memory_request,
        memory_limit=settings.worker_memory_limit,
        scratch_limit=settings.worker_scratch_limit,
    )
    return msgspec.json.encode(make_pod(job, node, 0, pod_settings)).decode()


CAUSES = {
    "Go, JSON": {"PODS_AS_JSON": "1"},
    "Go, our Pods": {"OUR_POD": our_pod()},
    "Go, our status": {"OUR_STATUS": "1"},
    "Go, fence": {"FENCE": "1"},
    "Go, our events": {"OUR_EVENTS": "1"},
}
# The environment variables of each.
VARIANTS = {
    GO: {},
    GO_UNFINISHED: {"ONLY_UNFINISHED": "1"},
    **CAUSES,
    GO_ALL: {name: value for variables in CAUSES.values() for name, value in variables.items()},
}
