"""VmafxNode: a place with CPUs or GPUs that jobs are given to."""

import re
from datetime import datetime
from typing import Annotated, ClassVar, Literal

from vmafx.api.fields import Generation, Identifier, Image, NonNegative, Positive, SmallCount, Time, Url, doc
from vmafx.api.hardware import Vendor
from vmafx.api.meta import AGE, ApiModel, Column, Condition, Conditions, CustomObject, MetaView, Names
from vmafx.api.pod import PodOverlay

Runtime = Literal["Pod", "Agent"]
AGENT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")  # of a node that an agent may speak for: a DNS label
REGISTERED_BY, BY_AGENT = "vmafx.dev/registered-by", "agent"  # a label, and what it says of nodes that nobody wrote


class VmafxNodeSpec(ApiModel):
    """What the node offers, and how its jobs run."""

    gpuVendor: Annotated[Vendor, doc("Whose GPU it has, or cpu.")]
    capacity: Annotated[Positive, doc("How many jobs it runs at once.")] = 1
    image: Annotated[Image | None, doc("Worker image, if not the usual one.")] = None
    runtime: Annotated[Runtime, doc("Pod: each job is a Pod of the cluster. Agent: an agent pulls its jobs.")] = "Pod"
    podTemplate: Annotated[PodOverlay | None, doc("Added to each worker Pod.")] = None
    unschedulable: Annotated[bool, doc("Give it no new jobs; running ones go on.")] = False


class VmafxNodeStatus(ApiModel):
    """How the node is doing."""

    healthy: Annotated[bool | None, doc("Whether its controller answers and its agent, if any, is alive.")] = None
    lastHeartbeat: Annotated[Time | None, doc("When its agent last spoke; written on the agent's behalf only.")] = None
    assignedJobs: Annotated[SmallCount, doc("Jobs it has now.")] = 0
    detectedDevice: Annotated[Url | None, doc("The device its agent found.")] = None
    agentSession: Annotated[Identifier | None, doc("The agent that speaks for the node.")] = None
    throughput: Annotated[NonNegative | None, doc("Frames per second it was measured to score.")] = None
    draining: Annotated[bool, doc("Its agent is about to stop, and takes no new jobs.")] = False
    observedHeartbeat: Annotated[
        Time | None, doc("The lastHeartbeat for which the agent was found silent; absent while it is not.")
    ] = None
    observedGeneration: Annotated[Generation, doc("The metadata.generation this status speaks of.")] = 0
    conditions: Annotated[Conditions, doc("Ready, and why not.")] = ()


class VmafxNode(CustomObject, kw_only=True, tag_field="kind", tag="VmafxNode"):
    """A VmafxNode is a place with CPUs or GPUs that jobs are given to."""

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
    """The part of the status that decisions are made from."""

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
    """A VmafxNode as caches keep it."""

    metadata: MetaView
    spec: VmafxNodeSpec
    status: NodeStatusView = NodeStatusView()
