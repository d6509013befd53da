"""The chart by other ways: pushed to an OCI registry and installed from it, by Argo CD and by Flux."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart import CHART, find, helm, helm_path, render
from tests.support.project import ROOT
from tests.support.registry import running_registry

ARGO = ROOT / "deploy" / "argocd" / "application.yaml"
FLUX = ROOT / "deploy" / "flux" / "helmrelease.yaml"
WORKFLOW = ROOT / ".github" / "workflows" / "chart.yaml"
ABOUT = yaml.safe_load((CHART / "Chart.yaml").read_text())


def test_the_chart_is_pushed_to_a_registry_and_rendered_from_it(tmp_path: Path) -> None:
    assert helm("package", str(CHART), "--destination", str(tmp_path)).returncode == 0
    with running_registry(tmp_path / "registry") as registry:
        charts = f"oci://{registry.address}/charts"
        done = helm("push", str(tmp_path / f"vmafx-{ABOUT['version']}.tgz"), charts, "--plain-http")
        assert done.returncode == 0, done.stderr
        assert re.search(r"^Digest: sha256:[0-9a-f]{64}$", done.stdout + done.stderr, re.MULTILINE)
        done = helm("template", "vmafx", f"{charts}/vmafx", "--version", ABOUT["version"], "--plain-http")
        assert done.returncode == 0, done.stderr
        assert "kind: Deployment" in done.stdout


def argo() -> tuple[str, dict[str, Any]]:
    source = yaml.safe_load(ARGO.read_text())["spec"]["source"]
    return source["targetRevision"], source["helm"]["valuesObject"]


def flux() -> tuple[str, dict[str, Any]]:
    namespace, repository, release = yaml.safe_load_all(FLUX.read_text())
    assert release["spec"]["chartRef"] == {"kind": repository["kind"], "name": repository["metadata"]["name"]}
    assert release["metadata"]["namespace"] == repository["metadata"]["namespace"] == namespace["metadata"]["name"]
    assert release["spec"]["install"]["remediation"]["retries"] > 0
    return repository["spec"]["ref"]["semver"].replace("x", "0"), release["spec"]["values"]


@pytest.mark.parametrize("read", [argo, flux])
def test_the_values_of_an_example_are_those_of_the_chart(read: Any) -> None:
    version, values = read()
    assert version == ABOUT["version"]
    manifests = render(values, namespace="vmafx")
    assert find(manifests, "Deployment", "vmafx-operator")["spec"]["replicas"] == 2
    assert find(manifests, "VmafxNode", "cpu-pool")["spec"]["gpuVendor"] == "cpu"


def test_argo_cd_ignores_what_the_roles_write() -> None:
    ignored = yaml.safe_load(ARGO.read_text())["spec"]["ignoreDifferences"]
    manifests = render({"operator": {"enabled": True}})
    for one in ignored:
        written = find(manifests, one["kind"], one["name"])
        assert not set(written) & {"data", "spec"}
    empty = {(one["kind"], one["metadata"]["name"]) for one in manifests if one["kind"] in {"Secret", "Lease"}}
    assert empty == {(one["kind"], one["name"]) for one in ignored}


def test_rendering_twice_gives_the_same() -> None:
    """Argo CD compares what it renders with what exists: nothing may be random or depend on the cluster."""
    values = {"operator": {"enabled": True}, "config": {"A": 1, "B": 2}, "nodes": {"a": {"gpuVendor": "cpu"}}}
    assert render(values) == render(values)


def test_the_workflow_builds_what_its_tests_need_before_their_time_limit() -> None:
    """What `make test` builds and these tests use; without, the build would be a part of a test."""
    steps = "".join(step.get("run", "") for step in yaml.safe_load(WORKFLOW.read_text())["jobs"]["check"]["steps"])
    tests = "".join(path.read_text() for path in (ROOT / "tests" / "integration" / "chart").glob("*.py"))
    commands = re.findall(r"\$\(BIN\)/python -m (tests\.support\.[\w.]+)", (ROOT / "Makefile").read_text())
    needed = [one for one in commands if f"from {one} import" in tests]
    assert {"tests.support.registry", "tests.support.module_crds", "tests.support.chart"} <= set(needed)
    for module in needed:
        installed = module == "tests.support.pushgateway"  # that of Debian
        assert ("prometheus-pushgateway" if installed else f".venv/bin/python -m {module}") in steps


def test_the_commands_of_the_workflow_run(tmp_path: Path) -> None:
    """Those for packaging, as the workflow has them, for a tag with the version of the chart."""
    steps = {step.get("name"): step for step in yaml.safe_load(WORKFLOW.read_text())["jobs"]["push"]["steps"]}
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    environ = {"PATH": f"{helm_path().parent}:/usr/bin:/bin", "HOME": str(tmp_path)}

    def run(step: str, tag: str) -> int:
        command = ["bash", "-eo", "pipefail", "-c", steps[step]["run"]]
        given = {**environ, "GITHUB_REF_NAME": tag}
        return subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, timeout=60, check=False).returncode

    tag = f"v{ABOUT['version']}"
    assert run("The tag is the version of the chart", tag) == 0
    assert run("The tag is the version of the chart", "v9.9.9") == 1
    assert run("Package", tag) == 0
    assert (tmp_path / "dist" / f"vmafx-{ABOUT['version']}.tgz").exists()
