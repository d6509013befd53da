"""VmafxNode: slots for jobs, on CPUs or on the GPUs of one vendor."""

import re
from datetime import datetime
from typing import Annotated, ClassVar, Literal

from vmafx.api.fields import Generation, Identifier, Image, NonNegative, Positive, SmallCount, Time, Url, doc
from vmafx.api.hardware import Vendor
from vmafx.api.meta import AGE, ApiModel, Column, Condition, Conditions, CustomObject, MetaView, Names
from vmafx.api.pod import PodOverlay

Runtime = Literal["Pod", "Agent"]
AGENT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # names that an agent may register: a DNS label
REGISTERED_BY, BY_AGENT = (
    "vmafx.dev/registered-by",
    "agent",
)  # the label, and its value, of nodes that were not created by a person


class VmafxNodeSpec(ApiModel):
    """Desired state of a VmafxNode: its hardware, its slots, and how its jobs run."""

    gpuVendor: Annotated[Vendor, doc("Vendor of the GPUs, or cpu if the node has none.")]
    capacity: Annotated[Positive, doc("Number of jobs that the node runs at a time. Defaults to 1.")] = 1
    image: Annotated[
        Image | None,
        doc("Image of the worker. If unset, the operator's VMAFX_WORKER_IMAGE. No effect with runtime Agent."),
    ] = None
    runtime: Annotated[
        Runtime,
        doc(
            "How jobs run. Pod: the operator creates a Pod for each attempt. Agent: an agent pulls the attempts. "
            "Defaults to Pod."
        ),
    ] = "Pod"
    podTemplate: Annotated[
        PodOverlay | None, doc("Fields that are merged into each worker Pod. No effect with runtime Agent.")
    ] = None
    unschedulable: Annotated[
        bool, doc("If true, no new jobs are placed on the node; running jobs continue. Defaults to false.")
    ] = False


class VmafxNodeStatus(ApiModel):
    """Observed state of a VmafxNode."""

    healthy: Annotated[
        bool | None,
        doc(
            "Whether the controller responds and the agent, if any, sends heartbeats. "
            "Jobs are placed only on healthy nodes. Unset until the node is checked."
        ),
    ] = None
    lastHeartbeat: Annotated[
        Time | None, doc("Time of the last heartbeat of the agent, on the clock of the controller, which writes it.")
    ] = None
    assignedJobs: Annotated[SmallCount, doc("Number of jobs placed on the node.")] = 0
    detectedDevice: Annotated[Url | None, doc("Device that the agent detected.")] = None
    agentSession: Annotated[
        Identifier | None, doc("ID of the current session of the agent. Unset if no agent has registered.")
    ] = None
    throughput: Annotated[NonNegative | None, doc("Frames scored per second, as measured by the agent.")] = None
    draining: Annotated[
        bool, doc("Whether the agent is shutting down: it finishes its jobs and accepts no new ones.")
    ] = False
    observedHeartbeat: Annotated[
        Time | None, doc("Value of lastHeartbeat that was found to be stale. Unset while heartbeats arrive.")
    ] = None
    observedGeneration: Annotated[Generation, doc("Most recent metadata.generation that the status is based on.")] = 0
    conditions: Annotated[Conditions, doc("Conditions of the node: Ready.")] = ()


class VmafxNode(CustomObject, kw_only=True, tag_field="kind", tag="VmafxNode"):
    """A VmafxNode provides slots for jobs, on CPUs or on the GPUs of one vendor."""

    names: ClassVar[Names] = Names(
        plural="vmafxnodes",
        short="vmnode",
        columns=(
            Column(name="Vendor", path=".spec.gpuVendor"),
            Column(name="Healthy", path=".status.healthy", type="boolean"),
            Column(name="Reason", path='.status.conditions[?(@.type=="Ready")].reason'),
            Column(name="Cordoned", path=".spec.unschedulable", type="boolean"),
            Column(name="Jobs", path=".status.assignedJobs", type="integer"),
            Column(name="Device", path=".status.detectedDevice"),
            AGE,
        ),
    )

    spec: VmafxNodeSpec
    status: VmafxNodeStatus = VmafxNodeStatus()


class NodeStatusView(ApiModel):
    """The status fields that the reconciler and the scheduler need."""

    healthy: bool | None = None
    lastHeartbeat: datetime | None = None
    assignedJobs: int = 0
    agentSession: str | None = None
    throughput: float | None = None
    draining: bool = False
    observedHeartbeat: datetime | None = None
    observedGeneration: int = 0
    conditions: tuple[Condition, ...] = ()


class NodeView(ApiModel):
    """A VmafxNode as caches store it."""

    metadata: MetaView
    spec: VmafxNodeSpec
    status: NodeStatusView = NodeStatusView()
