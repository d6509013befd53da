"""The plan of a chaos run, determined by a seed: jobs of every kind, their edits and fates, and how each must end."""

import random
from collections import Counter
from typing import Any, Literal, NamedTuple

from tests.support.job_history import Object
from tests.support.kubelet import Fate
from vmafx.api.job import VmafxJobSpec

Kind = Literal[
    "plain", "bad", "cancelled", "suspended", "promoted", "replaced", "hurt", "robbed", "hopeless",
    "stopped", "paused", "late", "mortal",
]  # fmt: skip
WEIGHTS: dict[Kind, int] = {
    "plain": 24, "bad": 7, "cancelled": 9, "suspended": 9, "promoted": 8, "replaced": 8, "hurt": 13, "robbed": 6,
    "hopeless": 3, "stopped": 4, "paused": 1, "late": 3, "mortal": 5,
}  # fmt: skip
ENDS_OF: dict[Kind, set[str]] = {
    "bad": {"BadInput"},
    "cancelled": {"Cancelled", "Scored"},
    "hopeless": {"RetriesExhausted"},
    "stopped": {"Cancelled"},
    "late": {"DeadlineExceeded"},
}
Fault = Literal[
    "kill operator", "stop leader", "kill apiserver", "kill etcd",
    "delete node", "cordon node",
    "kill agent", "lose agent", "stop agent", "freeze agent", "kill controller", "kill controllers", "cut connections",
    "kill worker", "delete agent", "cordon agent",
    "delete leader's Pod", "kill leader", "delete controller's Pod", "delete worker's Pod", "delete agent's Pod",
    "kill kubelet", "drain Kubernetes node", "unplug Kubernetes node",
]  # fmt: skip
BAD_ENDS: tuple[Fate, ...] = ("killed", "oom", "evicted", "drained", "shut down", "empty", "garbage")

SHORT = "reference.mkv", "distorted.mp4"
LONG = "long.mkv", "long.mkv"
ENDLESS = "endless.mkv", "endless.mkv"  # takes longer than the replacement of a stopped operator
PAIRS: dict[Kind, tuple[str, str]] = {
    "bad": ("reference.mkv", "none.mp4"), "paused": LONG, "stopped": ENDLESS, "late": ENDLESS,
    "hopeless": ENDLESS,
}  # fmt: skip


class PlannedJob(NamedTuple):
    """A job, the times of its edits, and the fates of its attempts."""

    name: str
    kind: Kind
    moments: tuple[float, ...]  # seconds after its creation or the previous edit
    fates: tuple[Fate, ...]  # of its first attempts

    @property
    def pair(self) -> tuple[str, str]:
        """Its reference and distorted clip."""
        return PAIRS.get(self.kind, SHORT)

    def spec(self, reference: str, distorted: str, **others: Any) -> VmafxJobSpec:
        """With the URIs of its clips, and other fields."""
        limits: dict[Kind, dict[str, Any]] = {
            "hopeless": {"retryLimit": 1},
            "late": {"activeDeadlineSeconds": 1},
            "mortal": {"ttlSecondsAfterFinished": 0},
        }
        return VmafxJobSpec(reference, distorted, **({"retryLimit": 20} | limits.get(self.kind, {}) | others))


class Plan(NamedTuple):
    jobs: list[PlannedJob]
    faults: dict[int, Fault]  # by number of jobs created before

    def fate_of(self, attempt: str) -> Fate | None:
        """The fate of an attempt, by name of the job and number."""
        name, _, number = attempt.rpartition("-")
        job = next((job for job in self.jobs if job.name == name), None)
        if job is None:
            return None
        if job.kind == "hopeless":
            return "garbage"
        return job.fates[int(number)] if int(number) < len(job.fates) else None


def make_plan(seed: int, jobs: int, faults: Counter[Fault], of_each: int = 1) -> Plan:
    """At least `of_each` jobs of every kind, if there are enough."""
    choice = random.Random(seed)
    kinds = [*WEIGHTS] * of_each
    kinds = [*kinds, *choice.choices(list(WEIGHTS), list(WEIGHTS.values()), k=max(0, jobs - len(kinds)))][:jobs]
    choice.shuffle(kinds)
    planned = [
        PlannedJob(
            f"job-{number:04}",
            kind,
            tuple(choice.uniform(0.0, 2.5) for _ in range(3)),
            tuple(choice.choices(BAD_ENDS, k=choice.randint(1, 2))) if kind == "hurt" else (),
        )
        for number, kind in enumerate(kinds)
    ]
    numbers = choice.sample(range(2, jobs), faults.total())
    return Plan(planned, dict(zip(numbers, choice.sample(list(faults.elements()), faults.total()), strict=True)))


def job_errors(planned: PlannedJob, last: Object | None, score: float | None, *, deleted: bool) -> list[str]:
    """Errors of the last version of a job. `score` is that of its clips by `vmafx score`."""
    if last is None or deleted != (planned.kind == "mortal"):
        return [f"{planned.name} ({planned.kind}) {'does not exist' if deleted or last is None else 'still exists'}"]
    status = last["status"]
    ended = [one["reason"] for one in status.get("conditions", ()) if one["type"] in {"Complete", "Failed"}]
    if len(ended) != 1 or ended[0] not in ENDS_OF.get(planned.kind, {"Scored"}):
        return [f"{planned.name} ({planned.kind}) ended as {ended}: {status}"]
    if status["phase"] == "Succeeded" and status.get("score") != score:
        return [f"{planned.name} has score {status.get('score')}, and `vmafx score` says {score}"]
    return []
