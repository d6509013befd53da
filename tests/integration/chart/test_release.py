"""A release installed by Helm, its containers as processes: roles suffice, `helm test` finds faults, nothing stays."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.support.chart import CHART
from tests.support.chart_processes import Release, says
from tests.support.fleet import make_clips
from tests.support.pushgateway import PROGRAM as PUSHGATEWAY
from tests.support.waiting import until

METRICS = {"vmafx-operator": 8081, "vmafx-controller": 8080, "vmafx": 8080}
KINDS = "all,configmaps,secrets,serviceaccounts,roles,rolebindings,leases,persistentvolumeclaims,poddisruptionbudgets"


def used_metrics(*files: str) -> set[str]:
    """The metrics in files of the chart."""
    text = "".join((CHART / file).read_text() for file in files)
    prefixes = "vmafx|controller_runtime|workqueue|rest_client|leader_election|process"
    found = set(re.findall(rf"\b((?:{prefixes})_[a-z_0-9]+)(?=[{{\[])", text))
    assert found
    return found


def exposed(text: str) -> set[str]:
    """The names of the samples of a response of /metrics."""
    return {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}


def names(release: Release, kinds: str) -> set[str]:
    return set(release.kubectl("get", kinds, "--output=name").split())


def write_keys(release: Release) -> dict[str, str]:
    """The file of the Secret with API keys, as people write it; returns the values that name it."""
    folder = release.folder / "etc" / "vmafx" / "keys"
    folder.mkdir(parents=True)
    (folder / "keys").write_text("# the callers\n\n  # and their keys\nann 0123456789abcdef\nbob fedcba9876543210\n")
    return {"mode": "keys", "keysSecret": "keys"}


@pytest.mark.parametrize("namespaced", [False, True])
def test_the_quick_start_scores_a_job_on_an_agent(release: Release, tmp_path: Path, namespaced: bool) -> None:
    before = names(release, KINDS)
    values = {
        "namespaced": namespaced,
        "operator": {"enabled": True, "leaderElect": True, "image": {"tag": "dev"}},
        "agents": {"pools": {"edge": {"kind": "DaemonSet", "labels": {"rack": "a"}, "capacity": 1}}},
        "auth": write_keys(release) if namespaced else {},
    }
    release.helm("upgrade", "--install", release.name, str(CHART), values=values)
    controller = release.start("Deployment", "vmafx-controller")
    says(controller, '"msg":"serving"')
    operator = release.start("Deployment", "vmafx-operator")
    agent = release.start("DaemonSet", "vmafx-agent-edge", NODE_NAME="ip-10-0-0-1.example.com")
    release.start("Deployment", "vmafx")

    for check in release.checks():
        done = release.run_check(check)
        assert done.returncode == 0, f"{check['metadata']['name']}: {done.stdout}{done.stderr}"
    texts = {name: release.metrics(name, port) for name, port in METRICS.items()}
    for names_used in (
        used_metrics("files/dashboard.json"),
        used_metrics("files/alerts/operator.yaml", "files/alerts/server.yaml"),
    ):
        expected = {name for name in names_used if not name.startswith("vmafx_mcp")}
        assert expected - {name for text in texts.values() for name in exposed(text)} == set()
    says(agent, "registered")
    node = json.loads(release.kubectl("get", "vmafxnode", "ip-10-0-0-1-example-com-edge", "--output=json"))
    assert node["metadata"]["labels"]["rack"] == "a"

    clips = make_clips(tmp_path)
    job = {
        "apiVersion": "vmafx.dev/v1",
        "kind": "VmafxJob",
        "metadata": {"name": "first"},
        "spec": {"reference": (clips / "reference.mkv").as_uri(), "distorted": (clips / "distorted.mp4").as_uri()},
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    release.kubectl("apply", "-f", str(tmp_path / "job.json"))
    release.kubectl("wait", "--for=condition=Complete", "--timeout=90s", "vmafxjob/first")
    assert 0 < float(release.kubectl("get", "vmafxjob", "first", "--output=jsonpath={.status.score}")) < 100
    assert "forbidden" not in operator.read_text() + controller.read_text()

    secret = json.loads(release.kubectl("get", "secret", "vmafx-controller-session", "--output=json"))
    release.helm("upgrade", release.name, str(CHART), values={**values, "operator": {"enabled": True}})
    after = json.loads(release.kubectl("get", "secret", "vmafx-controller-session", "--output=json"))
    assert after["data"] == secret["data"], "an upgrade keeps the key"
    uninstall_nodes(release, "ip-10-0-0-1-example-com-edge", tmp_path)
    release.kubectl("delete", "vmafxjobs", "--all")
    release.kubectl("wait", "--for=delete", "pods", "--all", "--timeout=60s")
    left = {one for one in names(release, KINDS) - before if not one.startswith(("event", "controllerrevision"))}
    assert left == set(), "an uninstall leaves nothing"
    cluster_wide = release.kubectl("get", "clusterroles,clusterrolebindings", "--output=name").split()
    assert [one for one in cluster_wide if "vmafx" in one] == []
    assert len(release.kubectl("get", "crds", "--output=name").split()) == 4


def uninstall_nodes(release: Release, registered: str, folder: Path) -> None:
    """Uninstall the release. Its hook deletes the VmafxNodes that its agents have registered, and no others."""
    others = ("of-a-person", "of-an-agent-outside")
    for name, labels in zip(others, ({}, {"vmafx.dev/registered-by": "agent"}), strict=True):
        metadata = {"name": name, "labels": labels}
        node = {"apiVersion": "vmafx.dev/v1", "kind": "VmafxNode", "metadata": metadata, "spec": {"gpuVendor": "cpu"}}
        (folder / "node.json").write_text(json.dumps(node))
        release.kubectl("create", "-f", str(folder / "node.json"))
    hooks = [one for one in release.hooks() if one["metadata"]["annotations"]["helm.sh/hook"] == "post-delete"]
    release.close()
    release.helm("uninstall", release.name, "--no-hooks")
    for one in hooks[:-1]:
        (folder / "hook.json").write_text(json.dumps(one))
        release.kubectl("apply", "-f", str(folder / "hook.json"))
    done = release.run_check(hooks[-1]["spec"]["template"] | {"metadata": {"name": "uninstall"}})
    assert (done.returncode, done.stdout) == (0, f"deleted the VmafxNode {registered}\n"), done.stderr
    left = names(release, "vmafxnodes")
    assert left == {f"vmafxnode.vmafx.dev/{name}" for name in others}
    release.kubectl("delete", "serviceaccount,role,rolebinding", "vmafx-uninstall")
    release.kubectl("delete", *left)


def test_the_mcp_server_passes_its_check_and_reaches_the_cluster(release: Release) -> None:
    values = {"workload": "StatefulSet", "statefulSet": {"cluster": True}, "auth": write_keys(release)}
    release.helm("install", release.name, str(CHART), values=values)
    says(release.start("StatefulSet", "vmafx"), '"msg":"serving"')
    name = f"vmafx-0.vmafx-headless.{release.namespace}.svc"
    release.addresses[f"{name}:8080"] = release.addresses["vmafx:8080"]
    (check,) = release.checks()
    done = release.run_check(check)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "requests without credentials are refused" in done.stdout
    assert "a session was opened" in done.stdout
    used = {one for one in used_metrics("files/dashboard.json", "files/alerts/mcp.yaml") if one.startswith("vmafx_mcp")}
    assert used - exposed(release.metrics("vmafx", 8080)) == set()


def test_the_batch_job_and_its_check_run(release: Release) -> None:
    release.helm("install", release.name, str(CHART), values={"workload": "Job"})
    (job,) = [one for one in release.manifests() if one["kind"] == "Job"]
    says(release.start("Job", job["metadata"]["name"]), "vmaf-tune compare")
    (check,) = release.checks()
    done = release.run_check(check)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "this machine can score" in done.stdout


def test_overridden_variables_are_installed_and_upgraded(release: Release) -> None:
    """By server-side apply, which refuses a variable that is there twice."""
    values = {"env": {"VMAFX_BACKEND": "auto"}, "extraEnv": [{"name": "HOME", "value": "/scratch/home"}]}
    release.helm("install", release.name, str(CHART), "--server-side=true", values=values)
    release.helm("upgrade", release.name, str(CHART), "--server-side=true", values={"env": {"VMAFX_BACKEND": "cpu"}})
    path = "--output=jsonpath={.spec.template.spec.containers[0].env[?(@.name=='VMAFX_BACKEND')].value}"
    assert release.kubectl("get", "deployment", "vmafx", path) == "cpu"


def test_the_checks_find_what_does_not_answer(release: Release) -> None:
    values = {"operator": {"enabled": True}, "tests": {"timeoutSeconds": 10}, "pushgateway": {"enabled": True}}
    release.helm("install", release.name, str(CHART), values=values)
    checks = release.checks()
    assert {one["metadata"]["name"] for one in checks} == {
        f"vmafx-test-{part}" for part in ("operator", "controller", "server", "pushgateway")
    }
    for service, port in (("operator", 8081), ("operator", 8082), ("controller", 8080), ("pushgateway", 9091)):
        release.addresses[f"vmafx-{service}:{port}"] = "127.0.0.1:9"
    release.addresses["vmafx:80"] = "127.0.0.1:9"
    for check in checks:
        assert release.run_check(check).returncode != 0, check["metadata"]["name"]


def test_the_pushgateway_passes_its_check(release: Release) -> None:
    image = {"repository": "localhost/pushgateway"}
    values = {
        "workload": "Job",
        "pushgateway": {"enabled": True, "image": image, "command": [shutil.which(PUSHGATEWAY)]},
    }
    release.helm("install", release.name, str(CHART), values=values)
    log = release.start("Deployment", "vmafx-pushgateway", listening="--web.listen-address=")
    until(lambda: "listen" in log.read_text().lower(), "the Pushgateway listens")
    (check,) = [one for one in release.checks() if one["metadata"]["name"] == "vmafx-test-pushgateway"]
    done = release.run_check(check)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_crds_are_updated_by_the_hook_which_may_do_nothing_else(release: Release) -> None:
    values = {"crds": {"upgrade": True}}
    release.helm("install", release.name, str(CHART), "--no-hooks", values=values)
    crd = "crd/vmafxjobs.vmafx.dev"
    old = [{"op": "replace", "path": "/spec/names/shortNames", "value": ["old"]}]
    release.kubectl("patch", crd, "--type=json", f"--patch={json.dumps(old)}")

    # Helm 3 leaves the CRDs of an earlier release as they are: the hook is for an installation too.
    release.helm("uninstall", release.name, "--no-hooks")
    release.helm("install", release.name, str(CHART), "--no-hooks", "--skip-crds", values=values)
    assert json.loads(release.kubectl("get", crd, "--output=json"))["spec"]["names"]["shortNames"] == ["old"]

    hooks = [one for one in release.hooks() if one["metadata"]["labels"]["app.kubernetes.io/component"] == "crds"]
    assert {one["metadata"]["annotations"]["helm.sh/hook"] for one in hooks} == {"pre-install,pre-upgrade"}
    for one in hooks[:-1]:
        (release.folder / "hook.json").write_text(json.dumps(one))
        release.kubectl("apply", "-f", str(release.folder / "hook.json"))
    assert hooks[-1]["kind"] == "Job"
    done = release.run_check(hooks[-1]["spec"]["template"] | {"metadata": {"name": "crds"}})
    assert done.returncode == 0, done.stderr
    assert json.loads(release.kubectl("get", crd, "--output=json"))["spec"]["names"]["shortNames"] == ["vmjob"]

    account = f"--as=system:serviceaccount:{release.namespace}:vmafx-crds"
    allowed = release.kubectl("auth", "can-i", "--list", account)
    assert "customresourcedefinitions.apiextensions.k8s.io" in allowed
    assert not {"delete", "*"} & set(
        re.findall(r"[a-z*]+", " ".join(re.findall(r"\[[^\]]*\]$", allowed, re.MULTILINE)))
    )
    release.kubectl("delete", "clusterrole,clusterrolebinding", f"{release.namespace}-vmafx-crds")
