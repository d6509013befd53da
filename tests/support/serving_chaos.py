"""Runs a plan of edits (serving_plan.py) on inference services while a test injects faults, then checks everything.

An autoscaler scales every Deployment that has one, through the scale subresource, all the time. At the end each service
must be as its spec says, nothing of a deleted one may be left, and the whole history must have no violation.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.support import job_history, serving_invariants
from tests.support.chaos_jobs import persist
from tests.support.faults import kill, start
from tests.support.serving import service_body
from tests.support.serving_invariants import owner
from tests.support.serving_kubelet import ServingKubelet
from tests.support.serving_plan import Edit, PlannedService
from tests.support.waiting import eventually
from vmafx.devcluster import ClusterOptions, DevCluster, crds
from vmafx.devcluster.components import APISERVER, CONTROLLER_MANAGER, SCHEDULER
from vmafx.inference.children import SERVICE_LABEL, TRACK_LABEL
from vmafx.inference.live import live_deployment
from vmafx.inference.traffic import canary_replicas
from vmafx.kube import INFERENCE_SERVICES, NAMESPACES, Client, ObjectKey, Resource, load_config
from vmafx.kube.core import DEPLOYMENTS, HPAS, POD_DISRUPTION_BUDGETS, PODS, SERVICES
from vmafx.kube.errors import Conflict, KubeError, NotFound
from vmafx.kube.resources import UntypedObject

UNTYPED_SERVICES = INFERENCE_SERVICES.decoded_as(dict)
SCALE_EVERY = 0.25  # seconds
SETTLE_WITHIN = 120.0  # seconds
State = dict[tuple[str, str], Any]  # by kind and name


class ServingCluster(NamedTuple):
    """A control plane that keeps its whole history."""

    cluster: DevCluster
    client: Client


@asynccontextmanager
async def serving_cluster(folder: Path) -> AsyncIterator[ServingCluster]:
    options = ClusterOptions(without=frozenset({SCHEDULER}), tethered=True)
    with DevCluster(folder / "cluster", options) as cluster:
        start(cluster, APISERVER, [*kill(cluster, APISERVER), *job_history.KEEP_ALL])
        async with Client(load_config(cluster.kubeconfig)) as client:
            await crds.install_crds(client)
            # Started anew, the garbage collector knows services at once; else it may take half a minute.
            start(cluster, CONTROLLER_MANAGER, kill(cluster, CONTROLLER_MANAGER))
            yield ServingCluster(cluster, client)


class ServingChaos:
    """One run, in a namespace of its own."""

    def __init__(self, shared: ServingCluster, namespace: str, services: list[PlannedService]) -> None:
        self.cluster, self.client = shared
        self.namespace, self._services = namespace, services
        self.scalings = 0
        self.changes = 0

    async def run(self, disturb: Callable[[asyncio.Event], Awaitable[None]]) -> None:
        """Edit the services while `disturb` injects faults: it repairs them and returns once its event is set."""
        meta = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        await persist(lambda: self.client.create(NAMESPACES, meta))
        edited = asyncio.Event()
        async with ServingKubelet(self.client, self.namespace):
            scaling = asyncio.create_task(self._scale())
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._disturb(disturb, edited))
                    async with asyncio.TaskGroup() as users:
                        for service in self._services:
                            users.create_task(self._edit(service))
                    edited.set()
            finally:
                scaling.cancel()
                await asyncio.gather(scaling, return_exceptions=True)
            await self._settle()
            await self._check_history()

    async def _disturb(self, disturb: Callable[[asyncio.Event], Awaitable[None]], edited: asyncio.Event) -> None:
        await disturb(edited)
        assert edited.is_set()

    async def _edit(self, service: PlannedService) -> None:
        key = ObjectKey(self.namespace, service.name)
        await self._create(service.name, service.created)
        for edit in service.edits:
            await asyncio.sleep(edit.pause)
            await self._apply(key, edit)

    async def _apply(self, key: ObjectKey, edit: Edit) -> None:
        if edit.action == "settle":
            await self._wait_ready(key)
        elif edit.action in {"replace", "delete"}:
            await persist(lambda: self.client.delete(INFERENCE_SERVICES, key), ignore_missing=True)
            if edit.action == "replace":
                await self._create(key.name, edit.spec)
        else:
            await persist(lambda: self.client.merge_patch(INFERENCE_SERVICES, key, {"spec": edit.spec}))

    async def _create(self, name: str, spec: dict[str, Any]) -> None:
        await persist(lambda: self.client.create(INFERENCE_SERVICES, service_body(name, **spec), self.namespace))

    async def _wait_ready(self, key: ObjectKey) -> None:
        service: UntypedObject = {}

        async def is_ready() -> bool:
            nonlocal service
            service = await persist(lambda: self.client.get(UNTYPED_SERVICES, key))
            return _service_state(service)[:2] == ("True", service["metadata"]["generation"])

        try:
            await eventually(is_ready, f"{key.name} is ready", within=SETTLE_WITHIN)
        except AssertionError as error:
            raise AssertionError(f"{error}: {service}") from None

    async def _scale(self) -> None:
        """Be the autoscaler of every Deployment that has one."""
        rng = random.Random(1)
        while True:
            try:
                deployments = await self._by_name(DEPLOYMENTS)
                for hpa in (await self.client.list(HPAS, self.namespace)).items:
                    spec = hpa["spec"]
                    target = deployments.get(spec["scaleTargetRef"]["name"])
                    if target is not None and owner(target) == owner(hpa):
                        await self._scale_to(target, rng.randint(spec["minReplicas"], spec["maxReplicas"]))
            except KubeError:
                pass  # the API server is down
            await asyncio.sleep(SCALE_EVERY)

    async def _scale_to(self, deployment: UntypedObject, replicas: int) -> None:
        """Scale a Deployment, unless it has changed since its autoscaler was seen."""
        meta = deployment["metadata"]
        patch = {"metadata": {"resourceVersion": meta["resourceVersion"]}, "spec": {"replicas": replicas}}
        with suppress(Conflict, NotFound):
            await self.client.merge_patch(DEPLOYMENTS, ObjectKey(self.namespace, meta["name"]), patch, "scale")
            self.scalings += 1

    async def _settle(self) -> None:
        """Wait until all services and children are as the plan says."""
        wanted, found = State(), State()

        async def settled() -> bool:
            nonlocal wanted, found
            wanted, found = await self._states()
            return wanted == found

        try:
            await eventually(settled, "all services are as their specs say", within=SETTLE_WITHIN, every=0.5)
        except AssertionError as error:
            differences = [
                f"{kind} {name}: {found.get((kind, name))}, expected {wanted.get((kind, name))}"
                for kind, name in sorted(wanted.keys() | found.keys())
                if wanted.get((kind, name)) != found.get((kind, name))
            ]
            raise AssertionError("\n".join([str(error), *differences])) from None

    async def _states(self) -> tuple[State, State]:
        """The services, children and Pods as they should be, and as they are."""
        services, deployments = await self._by_name(UNTYPED_SERVICES), await self._by_name(DEPLOYMENTS)
        found: State = {("service", name): _service_state(one) for name, one in services.items()}
        found |= {("Deployment", name): (owner(one), *_deployment_state(one)) for name, one in deployments.items()}
        for kind in (SERVICES, HPAS, POD_DISRUPTION_BUDGETS):
            found |= {
                (kind.kind, name): (owner(one), _child_state(one)) for name, one in (await self._by_name(kind)).items()
            }
        pods = (await self._by_name(PODS)).values()
        alive = [service for service in self._services if service.spec is not None]
        # Those of a deleted service belong to ReplicaSets, not to the operator: the garbage collector takes its time.
        serving = {pod["metadata"]["labels"][SERVICE_LABEL] for pod in pods}
        found["Pods", ""] = [service.name for service in alive if service.name in serving]
        wanted: State = {("Pods", ""): [service.name for service in alive]}
        for service in alive:
            if service.name in services:
                wanted |= self._wanted(service.name, service.spec or {}, services[service.name], deployments)
        return wanted, found

    def _wanted(
        self, name: str, spec: dict[str, Any], live: UntypedObject, deployments: dict[str, UntypedObject]
    ) -> State:
        uid, autoscaled, canary = live["metadata"]["uid"], bool(spec.get("minReplicas")), spec.get("canary")
        weight = canary["weight"] if canary else 0

        def live_replicas(track: str) -> int:
            found: int = deployments.get(f"{name}-{track}", {"spec": spec})["spec"]["replicas"]
            return found

        primary = live_replicas("primary") if autoscaled else spec["replicas"]
        tracks = {"primary": (spec["modelRef"], primary)}
        # While a canary has requests, the primary keeps its replicas: its autoscaler does not scale it down.
        scaled = {"primary": min(primary, spec["maxReplicas"]) if weight else spec["minReplicas"]} if autoscaled else {}
        if canary:
            count = canary_replicas(primary, weight)
            if autoscaled and weight == 100:
                scaled["canary"], count = min(count, spec["maxReplicas"]), live_replicas("canary")
            tracks["canary"] = canary["modelRef"], count
        selected = {0: "primary", 100: "canary"}.get(weight)
        selector = {SERVICE_LABEL: name} | ({TRACK_LABEL: selected} if selected else {})
        wanted: State = {
            ("service", name): ("True", live["metadata"]["generation"], spec["modelRef"]),
            ("Service", f"{name}-svc"): (uid, selector),
        }
        for track, (model, replicas) in tracks.items():
            child = f"{name}-{track}"
            wanted["Deployment", child] = uid, model, replicas, True
            wanted["Service", child] = uid, {SERVICE_LABEL: name, TRACK_LABEL: track}
            if track in scaled or replicas > 1:
                wanted["PodDisruptionBudget", child] = uid, None
            if track in scaled:
                wanted["HorizontalPodAutoscaler", f"{child}-hpa"] = uid, (scaled[track], spec["maxReplicas"])
        return wanted

    async def _by_name(self, kind: Resource[UntypedObject]) -> dict[str, UntypedObject]:
        return {one["metadata"]["name"]: one for one in (await self.client.list(kind, self.namespace)).items}

    async def _check_history(self) -> None:
        history = await job_history.read(self.cluster, self.namespace, job_history.SERVING_FOLDERS)
        self.changes = len(history)
        found = serving_invariants.violations(history)
        if found:
            before = serving_invariants.trace(history, found[0].change)
            raise AssertionError("\n".join([*before, *map(str, found)]))


def _service_state(service: UntypedObject) -> tuple[str | None, int, str]:
    """Whether it is ready, in which generation, and its model."""
    status = service.get("status", {})
    ready = next((one["status"] for one in status.get("conditions", ()) if one["type"] == "Ready"), None)
    return ready, status.get("observedGeneration", 0), service["spec"]["modelRef"]


def _deployment_state(deployment: UntypedObject) -> tuple[str, int, bool]:
    """Its model and replicas, and whether it is complete."""
    live = live_deployment(deployment["metadata"]["generation"], deployment["spec"], deployment.get("status"))
    return live.modelRef, live.replicas, live.complete


def _child_state(child: UntypedObject) -> Any:
    spec = child["spec"]
    return (
        (spec["minReplicas"], spec["maxReplicas"])
        if "scaleTargetRef" in spec
        else spec.get("ports") and spec["selector"]
    )
