"""vmafx installed by its chart in a real cluster, as a person would: helm, kubectl, jobs."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.cluster import Cluster
from tests.e2e.image import IMAGE
from tests.support.chart import helm
from tests.support.waiting import until

CHART = "deploy/helm/vmafx/"
TAG = IMAGE.rpartition(":")[2]
WORKLOAD = ("--set", f"image.tag={TAG}")  # without the operator
QUICK_START = ("--set", "operator.enabled=true", "--set", f"operator.image.tag={TAG}")
RELEASE = "vmafx"
MODES = ("enforce", "warn", "audit")
VMAFX = Path(sys.executable).with_name("vmafx")
# On a busy machine; nothing waits that long if all goes well.
START, SCORED = "120s", "120s"
PRIVATE = {"VMAFX_MEDIA_ALLOW_PRIVATE": "true"}  # the clips come from an address of the cluster
SMALL = {"requests": {"cpu": "50m", "memory": "64Mi"}}  # many Pods share two cores


class Product:
    """A release of the chart in a namespace of its own, which enforces restricted Pods."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        self.notes = ""  # that `helm install` printed
        labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in MODES}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))
        self.kubectl("wait", "--for=create", "serviceaccount/default", "configmap/kube-root-ca.crt", "--timeout=60s")

    # Commands

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float = 150.0) -> str:
        return self.cluster.kubectl(f"--namespace={self.namespace}", *arguments, stdin=stdin, timeout=timeout).stdout

    def get(self, *arguments: str) -> Any:
        return self.cluster.get(f"--namespace={self.namespace}", *arguments)

    def apply(self, *bodies: dict[str, Any]) -> None:
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(bodies)}))

    def helm(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        """Run Helm; a warning is an error."""
        done = helm(*arguments, f"--namespace={self.namespace}", values=values, kubeconfig=self.cluster.kubeconfig)
        assert (done.returncode, done.stderr) == (0, "" if "test" not in arguments else done.stderr), done.stderr
        return done.stdout

    def install(self, values: Mapping[str, Any] | None = None, options: Sequence[str] = QUICK_START) -> None:
        """Install or upgrade the release with the command of the documentation, and wait until its Pods are Ready."""
        command = ("upgrade", "--install", RELEASE, CHART, *options, "--wait", f"--timeout={START}")
        self.notes = self.helm(*command, values=values)

    def uninstall(self) -> None:
        self.helm("uninstall", RELEASE, "--ignore-not-found", "--wait", f"--timeout={START}")

    def remove(self) -> None:
        """Delete the release and the namespace.

        Jobs, services and trainings go first, with their Pods: for Pods that end, the deletion of a namespace waits
        half a minute.
        """
        self.kubectl("delete", "vmjob,zis,vmtrain", "--all", "--cascade=foreground", "--timeout=120s")
        self.uninstall()
        self.cluster.kubectl("delete", "namespace", self.namespace, "--timeout=120s", timeout=150)

    def everything(self) -> set[str]:
        """The names of all objects of the cluster, but those that come and go by themselves."""
        kinds = self.cluster.kubectl("api-resources", "--verbs=list,delete", "--output=name").stdout.split()
        kept = [
            kind for kind in kinds if not kind.startswith(("events", "endpointslices.", "endpoints", "apiservices."))
        ]
        template = "{range .items[*]}{.kind} {.metadata.namespace} {.metadata.name}{'\\n'}{end}"
        shown = self.kubectl("get", ",".join(kept), "--all-namespaces", f"--output=jsonpath={template}")
        return set(shown.splitlines())

    # Jobs

    def pool(self, name: str = "pool", **spec: Any) -> None:
        """A VmafxNode for jobs as Pods with the label pool=NAME. They may read clips from addresses of the cluster."""
        env = [{"name": key, "value": value} for key, value in PRIVATE.items()]
        template = {"env": env, "resources": SMALL}
        self.apply(_object("VmafxNode", name, {"gpuVendor": "cpu", "podTemplate": template, **spec}, {"pool": name}))
        self.wait_for_node(name)

    def wait_for_node(self, name: str) -> None:
        """Wait until a VmafxNode exists and is Ready."""
        for condition in ("create", "condition=Ready"):
            self.kubectl("wait", f"--for={condition}", f"vmnode/{name}", f"--timeout={START}")

    def submit(self, name: str, clips: Mapping[str, str], pool: str = "pool", **spec: Any) -> None:
        self.apply(_object("VmafxJob", name, {**clips, "nodeSelector": {"pool": pool}, **spec}))

    def job(self, name: str) -> Any:
        return self.get("vmafxjob", name)["status"]

    def finished(self, name: str) -> Any:
        """The status of a job that has Succeeded; fails as soon as it has not."""
        until(lambda: self.job(name)["phase"] in ("Succeeded", "Failed"), f"{name} is finished", 120)
        status = self.job(name)
        assert status["phase"] == "Succeeded", status
        return status

    def pods(self, component: str) -> list[Any]:
        """The Pods of a part of the chart that are not about to end."""
        selector = f"--selector=app.kubernetes.io/component={component}"
        return [one for one in self.get("pods", selector)["items"] if "deletionTimestamp" not in one["metadata"]]

    def leader(self) -> Any:
        """The Pod of the operator that leads; None if there is none."""
        holder = str(self.get("lease", "vmafx-operator.vmafx.dev")["spec"].get("holderIdentity", ""))
        return next((pod for pod in self.pods("operator") if holder.startswith(pod["metadata"]["name"])), None)


def _object(kind: str, name: str, spec: Mapping[str, Any], labels: Mapping[str, str] = {}) -> dict[str, Any]:
    metadata = {"name": name, "labels": dict(labels)}
    return {"apiVersion": "vmafx.dev/v1", "kind": kind, "metadata": metadata, "spec": dict(spec)}


def is_ready(pod: Any) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def score_here(reference: Path, distorted: Path) -> float:
    """What `vmafx score` says on this machine."""
    command = [str(VMAFX), "score", str(reference), str(distorted), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return float(json.loads(done.stdout)["score"])
