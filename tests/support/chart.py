"""The Helm chart as Helm renders and installs it.

`python -m tests.support.chart` builds Helm before the tests, which have a time limit, and prints its path.
"""

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from tests.support.project import ROOT
from vmafx.devcluster.helm import find_helm
from vmafx.devcluster.progress import PlainProgress

CHART = ROOT / "deploy" / "helm" / "vmafx"
VENDORS = ("nvidia", "amd", "intel", "cpu")
WORKLOADS = ("Deployment", "Job", "StatefulSet")
TIMEOUT = 120  # seconds
Manifest = dict[str, Any]


@cache
def helm_path() -> Path:
    return find_helm(PlainProgress())


def helm(
    *arguments: str, values: Mapping[str, Any] | None = None, kubeconfig: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run Helm with values of the chart, as a file."""
    command = [str(helm_path()), *arguments]
    if kubeconfig is not None:
        command += ["--kubeconfig", str(kubeconfig)]
    given = None
    if values is not None:
        command += ["--values", "-"]
        given = msgspec.json.encode(values).decode()  # JSON is YAML
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=TIMEOUT, check=False)


def render(
    values: Mapping[str, Any], *arguments: str, release: str = "vmafx", namespace: str = "video"
) -> list[Manifest]:
    """The manifests of a release, with the Pods of `helm test` and hooks."""
    done = helm("template", release, str(CHART), "--namespace", namespace, *arguments, values=values)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def refused(values: Mapping[str, Any], *arguments: str) -> str:
    """The error of `helm template` for values that it must not accept."""
    done = helm("template", "vmafx", str(CHART), *arguments, values=values)
    assert done.returncode != 0, done.stdout
    return done.stderr


def combination(vendor: str, workload: str, *, operator: bool) -> dict[str, Any]:
    """The values of one of the combinations that have to work."""
    return {"workload": workload, "gpu": {"vendor": vendor}, "operator": {"enabled": operator}}


def find(manifests: Sequence[Manifest], kind: str, name: str) -> Manifest:
    (found,) = [one for one in manifests if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def pod_templates(manifests: Sequence[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Every Pod and Pod template, with the name of its object; to be called once."""
    for one in manifests:
        name, spec = f"{one['kind']}-{one['metadata']['name']}".lower(), one.get("spec", {})
        match one["kind"]:
            case "Pod":
                yield name, {"metadata": one["metadata"], "spec": spec}
            case "CronJob":
                yield name, spec["jobTemplate"]["spec"]["template"]
            case "StatefulSet":  # its controller adds the volumes of the claims
                claims = [claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())]
                spec["template"]["spec"]["volumes"] += [
                    {"name": claim, "persistentVolumeClaim": {"claimName": f"{claim}-{name}-0"}} for claim in claims
                ]
                yield name, spec["template"]
            case "Deployment" | "Job" | "DaemonSet":
                yield name, spec["template"]


def as_pods(manifests: Sequence[Manifest], namespace: str) -> list[Manifest]:
    """A Pod for each Pod template."""
    manifests = deepcopy(list(manifests))
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-of-{name}"[:63].rstrip("-"), "namespace": namespace},
            "spec": template["spec"],
        }
        for name, template in pod_templates(manifests)
    ]


def environment(container: Manifest) -> dict[str, str]:
    """The variables of a container that have a value; of several with one name the last, as in Kubernetes."""
    return {entry["name"]: entry["value"] for entry in container.get("env", ()) if "value" in entry}


def as_yaml(manifests: Sequence[Manifest]) -> str:
    return yaml.safe_dump_all(manifests)


if __name__ == "__main__":
    sys.stdout.write(f"{helm_path()}\n")
