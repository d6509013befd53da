"""Invariants of the history of inference services and their children, whatever happens to the operator."""

from collections.abc import Iterator
from typing import NamedTuple

from tests.support.job_history import Change, Kind, Object, condition
from vmafx.inference.children import SERVICE_LABEL, TRACK_LABEL, TRACKS, LiveDeployment
from vmafx.inference.live import live_deployment
from vmafx.operator.context import FIELD_MANAGER

Violations = Iterator[str]
TRACE_LENGTH = 80  # changes


class Cluster:
    """The objects that exist after a change."""

    def __init__(self) -> None:
        self._objects: dict[tuple[Kind, str], Object] = {}
        self.served: set[str] = set()  # uids of services whose primary had a ready Pod
        self.uids: dict[str, str] = {}  # of all services that ever existed, with their names
        self.outdated: set[str] = set()  # uids of autoscalers that were not wanted any more when they were created
        self.scaled_in_rollout: set[str] = set()  # Deployments, until they are complete again
        self._owners: dict[str, str] = {}  # of all other objects that ever existed, by uid

    def get(self, kind: Kind, name: str) -> Object | None:
        return self._objects.get((kind, name))

    def take(self, change: Change) -> None:
        if change.new is None:
            self._objects.pop((change.kind, change.name), None)
        else:
            self._objects[change.kind, change.name] = change.new
            uid = change.new["metadata"]["uid"]
            if change.kind == "inference service":
                self.uids[uid] = change.name
            else:
                self._owners[uid] = owner(change.new)
            if change.kind == "autoscaler" and change.old is None and not self._wants_autoscaler(change.new):
                self.outdated.add(uid)
            if change.kind == "deployment":
                self._take_deployment(change.name, change.old or change.new, change.new)
            if change.kind == "pod" and _is_ready_pod(change.new) and _label(change.new, TRACK_LABEL) == "primary":
                self.served.add(self._service_of(uid))

    def _take_deployment(self, name: str, old: Object, new: Object) -> None:
        live = _live(new)
        if live.complete:
            self.scaled_in_rollout.discard(name)
        elif old["spec"]["replicas"] != live.replicas and not _live(old).complete:
            self.scaled_in_rollout.add(name)

    def _wants_autoscaler(self, autoscaler: Object) -> bool:
        service = self.get("inference service", self.uids.get(owner(autoscaler), ""))
        return service is None or service["spec"].get("minReplicas") != 0

    def _service_of(self, uid: str) -> str:
        """The uid of the service that owns an object, directly or not."""
        while uid in self._owners:
            uid = self._owners[uid]
        return uid

    def live_service(self, name: str) -> Object | None:
        """The service of this name, unless it is being deleted."""
        found = self.get("inference service", name)
        return found if found is not None and "deletionTimestamp" not in found["metadata"] else None

    def ready_pods(self, selector: dict[str, str]) -> int:
        """The number of ready Pods with these labels, as a Service counts them."""
        return sum(
            _is_ready_pod(pod) and all(_label(pod, name) == value for name, value in selector.items())
            for (kind, _), pod in self._objects.items()
            if kind == "pod"
        )


class Violation(NamedTuple):
    change: Change
    text: str

    def __str__(self) -> str:
        return f"revision {self.change.revision}, {self.change.kind} {self.change.name}: {self.text}"


def violations(history: list[Change]) -> list[Violation]:
    found, cluster = list[Violation](), Cluster()
    for change in history:
        cluster.take(change)
        for invariant in INVARIANTS:
            found += [Violation(change, text) for text in invariant(change, cluster)]
    return found


def trace(history: list[Change], change: Change) -> list[str]:
    """The last changes of the same service until this one, a line each."""
    service = change.name.partition("-")[0]
    changes = [one for one in history if one.revision <= change.revision and one.name.partition("-")[0] == service]
    return [_summary(one) for one in changes[-TRACE_LENGTH:]]


def _summary(change: Change) -> str:
    if change.new is None:
        return f"{change.revision} {change.kind} {change.name} deleted"
    spec, status = change.new["spec"], change.new.get("status", {})
    shown = ("replicas", "minReplicas", "selector", "modelRef", "canary")
    details = {name: spec[name] for name in shown if name in spec}
    if change.kind == "pod":
        details = {"ready": _is_ready_pod(change.new), "deleting": "deletionTimestamp" in change.new["metadata"]}
    if "replicas" in status:
        details |= {"live": status["replicas"], "ready": status.get("readyReplicas", 0)}
    return f"{change.revision} {change.kind} {change.name} {details}"


def autoscaled_replicas(change: Change, cluster: Cluster) -> Violations:
    """While a Deployment has an autoscaler, its replicas change only through the scale subresource.

    The exception is an autoscaler by a former leader, which did not know yet that the service wants none.
    """
    if change.kind != "deployment" or change.new is None:
        return
    autoscaler = cluster.get("autoscaler", f"{change.name}-hpa")
    if (
        autoscaler is None
        or owner(autoscaler) != owner(change.new)
        or autoscaler["metadata"]["uid"] in cluster.outdated
    ):
        return
    managers, now = _managers_of_replicas(change.new), change.new["spec"]["replicas"]
    before = change.old["spec"]["replicas"] if change.old is not None else now
    if before != now and not any(subresource == "scale" for _, subresource in managers):
        yield f"its replicas went from {before} to {now} by {managers}"
    if change.old is not None and (FIELD_MANAGER, "") in set(managers) - set(_managers_of_replicas(change.old)):
        yield "the operator takes its replicas although it has an autoscaler"


def no_gap(change: Change, cluster: Cluster) -> Violations:
    """Once the primary has a ready Pod, the Service that people call always selects a ready Pod.

    Kubernetes does not guarantee it if an autoscaler scales a Deployment in the middle of a rollout: it scales old and
    new Pods down in proportion, and may delete the last one that is ready.
    """
    name = change.name.removesuffix("-svc") if change.kind == "service" else ""
    if change.kind == "pod":
        name = _label(change.new or change.old or {}, SERVICE_LABEL) or ""
    service, called = cluster.live_service(name), cluster.get("service", f"{name}-svc")
    if service is None or called is None or service["metadata"]["uid"] not in cluster.served:
        return
    selector = called["spec"]["selector"]
    tracks = [selector[TRACK_LABEL]] if TRACK_LABEL in selector else TRACKS
    if change.kind == "pod" and all(f"{name}-{track}" in cluster.scaled_in_rollout for track in tracks):
        return
    if owner(called) == service["metadata"]["uid"] and not cluster.ready_pods(selector):
        yield f"{name}-svc selects no ready Pod with {selector}"


def called_service_stays(change: Change, cluster: Cluster) -> Violations:
    """The primary Deployment and the called Service of a live service are never deleted."""
    if change.new is not None or change.old is None or change.kind not in {"deployment", "service"}:
        return
    service = cluster.live_service(change.name.rpartition("-")[0])
    if service is None or service["metadata"]["uid"] != owner(change.old):
        return
    if change.name.endswith(("-primary", "-svc")):
        yield "was deleted while its owner is live"


def owners(change: Change, cluster: Cluster) -> Violations:
    """A child has one owner for all its life: the service of its name.

    The operator may create a child just after the service was deleted, even if a new one of that name exists: the
    garbage collector deletes such a child. None is left at the end, see serving_chaos.py.
    """
    if change.kind not in {"deployment", "service", "autoscaler"} or change.new is None:
        return
    references = change.new["metadata"].get("ownerReferences", [])
    if len(references) != 1:
        yield f"has {len(references)} owners"
        return
    uid, name = references[0]["uid"], references[0]["name"]
    if cluster.uids.get(uid) != name:
        yield f"its owner {name} {uid} has never existed"
    if change.old is not None and owner(change.old) != uid:
        yield f"its owner went from {owner(change.old)} to {uid}"


def observed_generation(change: Change, _: Cluster) -> Violations:
    """status.observedGeneration never decreases and is never ahead."""
    if change.kind == "inference service" and change.new is not None:
        before, now = _observed(change.old or {}), _observed(change.new)
        if now < before or now > change.new["metadata"]["generation"]:
            yield f"observedGeneration went from {before} to {now}"


def ready(change: Change, cluster: Cluster) -> Violations:
    """A service that becomes ready in its latest generation has all the replicas of that generation."""
    if change.kind != "inference service" or change.new is None or not _is_ready(change.new):
        return
    if change.old is not None and _is_ready(change.old):
        return
    spec, autoscaled = change.new["spec"], bool(change.new["spec"].get("minReplicas"))
    models = {"primary": spec["modelRef"]} | ({"canary": spec["canary"]["modelRef"]} if spec.get("canary") else {})
    for track, model in models.items():
        found = cluster.get("deployment", f"{change.name}-{track}")
        if found is None:
            yield f"is ready without its {track}"
            continue
        live = _live(found)
        if live.modelRef != model:
            yield f"is ready, but its {track} has {live.modelRef}, not {model}"
        # An autoscaler may change the replicas at any time; the canary follows it.
        if not autoscaled and not (live.complete and (track == "canary" or live.replicas == spec["replicas"])):
            yield f"is ready, but its {track} is not complete: {live}"


INVARIANTS = (autoscaled_replicas, no_gap, called_service_stays, owners, observed_generation, ready)


def owner(child: Object) -> str:
    return next((one["uid"] for one in child["metadata"].get("ownerReferences", ())), "")


def _is_ready_pod(pod: Object) -> bool:
    ready = condition(pod.get("status", {}), "Ready", "True") is not None
    return ready and "deletionTimestamp" not in pod["metadata"]


def _live(deployment: Object) -> LiveDeployment:
    return live_deployment(deployment["metadata"]["generation"], deployment["spec"], deployment.get("status"))


def _managers_of_replicas(deployment: Object) -> list[tuple[str, str]]:
    """The managers of spec.replicas, each with the subresource that it wrote."""
    return [
        (entry["manager"], entry.get("subresource", ""))
        for entry in deployment["metadata"].get("managedFields", ())
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    ]


def _observed(service: Object) -> int:
    generation: int = service.get("status", {}).get("observedGeneration", 0)
    return generation


def _is_ready(service: Object) -> bool:
    current = _observed(service) == service["metadata"]["generation"]
    return current and condition(service.get("status", {}), "Ready", "True") is not None


def _label(item: Object, name: str) -> str | None:
    value: str | None = item.get("metadata", {}).get("labels", {}).get(name)
    return value
