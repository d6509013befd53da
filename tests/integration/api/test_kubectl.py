"""The kinds in an unmodified kubectl."""

import json
from pathlib import Path

import pytest

from tests.conftest import Kubectl
from tests.support.fleet import add_node
from tests.support.project import ROOT
from tests.support.waiting import until
from vmafx.kube import JOBS, NODES, Client, ObjectKey

EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
JOB = """
apiVersion: vmafx.dev/v1
kind: VmafxJob
metadata: {name: j}
spec: {reference: "file:///a.mp4", distorted: "file:///b.mp4"}
"""


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.strip().splitlines()]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_accepted(kubectl: Kubectl, example: Path) -> None:
    done = kubectl("apply", "--validate=strict", "-f", str(example))
    assert (done.returncode, done.stderr) == (0, "")
    assert "created" in done.stdout


def test_every_kind_has_an_example() -> None:
    manifests = "".join(path.read_text() for path in EXAMPLES)
    for kind in ("VmafxJob", "VmafxNode", "VmafxModelTraining", "ZerfooInferenceService"):
        assert f"kind: {kind}\n" in manifests


def test_the_category_lists_all_kinds(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(EXAMPLES[0].parent))
    shown = kubectl("get", "vmafx", "-o", "name").stdout
    for kind in ("vmafxjob", "vmafxnode", "vmafxmodeltraining", "zerfooinferenceservice"):
        assert f"{kind}.vmafx.dev/" in shown


async def test_a_new_job_is_pending_before_any_status_write(kubectl: Kubectl, client: Client, namespace: str) -> None:
    kubectl("apply", "-f", "-", stdin=JOB)
    assert rows(kubectl("get", "vmjob", "--field-selector", "status.phase=Pending").stdout)[1][:2] == ["j", "Pending"]
    assert kubectl("get", "vmjob", "--field-selector", "status.phase=Running", "-o", "name").stdout == ""
    await client.patch_status(JOBS, ObjectKey(namespace, "j"), {"phase": "Running", "assignedNode": "cpu-pool"})
    head, row = rows(kubectl("get", "vmjob", "--field-selector", "status.phase=Running").stdout)
    assert head == ["NAME", "PHASE", "SCORE", "NODE", "AGE"]
    assert row[:3] == ["j", "Running", "cpu-pool"]
    assert kubectl("get", "vmjob", "--field-selector", "status.assignedNode=cpu-pool", "-o", "name").stdout


def test_printer_columns(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(EXAMPLES[0].parent))
    heads = {kind: rows(kubectl("get", kind, "-o", "wide").stdout)[0] for kind in ("vmjob", "vmnode", "vmtrain", "zis")}
    assert heads == {
        "vmjob": ["NAME", "PHASE", "SCORE", "NODE", "AGE", "BACKEND", "MODEL", "PRIORITY", "MESSAGE"],
        "vmnode": ["NAME", "VENDOR", "HEALTHY", "REASON", "CORDONED", "JOBS", "DEVICE", "AGE"],
        "vmtrain": ["NAME", "PHASE", "SAMPLES", "MODELVERSION", "AGE"],
        "zis": ["NAME", "READY", "REPLICAS", "CANARY", "URL", "AGE"],
    }


async def test_nodes_that_accept_no_new_jobs_show_the_reason(kubectl: Kubectl, client: Client, namespace: str) -> None:
    await add_node(client, namespace, "draining", runtime="Agent")
    await add_node(client, namespace, "cordoned", unschedulable=True)
    ready = {"type": "Ready", "status": "False", "reason": "Draining", "lastTransitionTime": "2026-05-28T12:30:15Z"}
    await client.patch_status(NODES, ObjectKey(namespace, "draining"), {"draining": True, "conditions": [ready]})
    shown = kubectl("get", "vmnode", "--no-headers").stdout
    assert rows(shown)[1][:5] == ["draining", "cpu", "true", "Draining", "false"]
    assert rows(shown)[0][:4] == ["cordoned", "cpu", "true", "true"]  # no reason until the operator writes one


def test_explain_shows_the_descriptions_of_fields(kubectl: Kubectl) -> None:
    reference = "reference\t<string> -required-\n    URI of the reference clip."
    until(lambda: reference in kubectl("explain", "vmjob.spec").stdout, "the server has published the schemas")
    assert "Method that combines the scores" in kubectl("explain", "vmjob.spec.options.pooling").stdout
    assert (
        "hostPath"
        not in kubectl("explain", "vmnode.spec.podTemplate.volumes", "--recursive").stdout.partition("FIELDS")[2]
    )


def test_a_service_can_be_scaled(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=JOB.replace("VmafxJob", "ZerfooInferenceService").replace(
        '{reference: "file:///a.mp4", distorted: "file:///b.mp4"}', "{modelRef: m}"))  # fmt: skip
    assert "scaled" in kubectl("scale", "zis/j", "--replicas=3").stdout
    service = json.loads(kubectl("get", "zis", "j", "-o", "json").stdout)
    assert service["spec"]["replicas"] == 3
    rejected = kubectl("scale", "zis/j", "--replicas=0")
    assert rejected.returncode != 0
    assert "should be greater than or equal to 1" in rejected.stderr


async def test_kubectl_wait_sees_a_condition(kubectl: Kubectl, client: Client, namespace: str) -> None:
    kubectl("apply", "-f", "-", stdin=JOB)
    done = {"type": "Complete", "status": "True", "reason": "Scored", "lastTransitionTime": "2026-05-28T12:30:15Z"}
    await client.patch_status(
        JOBS, ObjectKey(namespace, "j"), {"phase": "Succeeded", "score": 93.2, "conditions": [done]}
    )
    assert kubectl("wait", "--for=condition=Complete", "vmjob/j", "--timeout=30s").returncode == 0
    assert rows(kubectl("get", "vmjob").stdout)[1][:3] == ["j", "Succeeded", "93.2"]


@pytest.mark.parametrize(
    ("manifest", "error"),
    [
        (JOB.replace("spec: {", "spec: {{"), "error parsing"),
        (JOB.replace("distorted", "distored"), 'unknown field "spec.distored"'),
        (JOB.replace('"file:///a.mp4"', "5"), 'must be of type string: "integer"'),
        (JOB.replace("spec: {", "spec: {priority: high, "), 'must be of type integer: "string"'),
        (JOB.replace("VmafxJob", "VmafxJop"), 'no matches for kind "VmafxJop"'),
        (JOB.replace("reference", "#"), "error"),
    ],
)
def test_an_invalid_manifest_is_rejected_with_the_reason(kubectl: Kubectl, manifest: str, error: str) -> None:
    rejected = kubectl("apply", "-f", "-", stdin=manifest)
    assert rejected.returncode != 0
    assert error in rejected.stderr
    assert kubectl("get", "vmjob", "-o", "name").stdout == ""
