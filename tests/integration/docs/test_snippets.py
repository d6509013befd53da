"""Examples, manifests and links of the documentation."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import Kubectl
from tests.support.project import ROOT
from tests.support.waiting import until
from vmafx.devcluster import DevCluster
from vmafx.kube import Client


async def test_the_example_of_the_kubernetes_client(
    client: Client, cluster: DevCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/client.md").read_text(), re.DOTALL)
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    names: dict[str, Any] = {}
    exec(compile(code, "docs/client.md", "exec"), names)  # noqa: S102 - from docs/
    await names["main"]()
    assert capsys.readouterr().out == "Pending\ndoc\n"


def test_the_roles_of_an_agent_allow_only_the_registration_and_the_status_of_its_own_node(
    client: Client, kubectl: Kubectl, namespace: str
) -> None:
    page = (ROOT / "docs/agents.md").read_text()
    commands = re.findall(r"^    kubectl (create (?:serviceaccount|role|rolebinding|token) .*)$", page, re.MULTILINE)
    assert len(commands) == 6
    for command in commands:
        words = command.replace("=default:", f"={namespace}:").removesuffix(" > token").split()
        done = kubectl(*words)
        assert done.returncode == 0, done.stderr

    def allowed(verb: str, resource: str, *options: str) -> bool:
        account = f"--as=system:serviceaccount:{namespace}:workstation-7"
        return kubectl("auth", "can-i", verb, resource, *options, account).stdout.strip() == "yes"

    own = ("vmafxnodes.vmafx.dev/workstation-7", "--subresource=status")
    until(lambda: allowed("patch", *own), "the API server has seen the role and its binding")
    # What the controller asks before it creates the node.
    until(lambda: allowed("create", "vmafxnodes.vmafx.dev/workstation-7"), "the same for the other role")
    assert not allowed("create", "vmafxnodes.vmafx.dev")  # what the API server asks
    assert not allowed("create", "vmafxnodes.vmafx.dev/another")
    assert not allowed("patch", "vmafxnodes.vmafx.dev/another", "--subresource=status")
    assert not allowed("patch", "vmafxnodes.vmafx.dev/workstation-7")
    assert not allowed("get", "vmafxjobs.vmafx.dev")


def test_the_token_file_is_private_and_ignored_by_git() -> None:
    page = (ROOT / "docs/agents.md").read_text()
    assert re.search(r"^    umask 077.*\n    kubectl create token .* > token$", page, re.MULTILINE)
    assert "/token" in (ROOT / ".gitignore").read_text().splitlines()


def test_no_example_has_the_name_of_the_page_node() -> None:
    names = [yaml.safe_load(path.read_text())["metadata"]["name"] for path in (ROOT / "examples").glob("node-*.yaml")]
    assert "workstation-7" not in names
    assert "--name workstation-7" in (ROOT / "docs/agents.md").read_text()


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    systemd = shutil.which("systemd-analyze")
    if systemd is None:
        pytest.skip("systemd is not installed")
    unit = (ROOT / "deploy/systemd/vmafx-agent.service").read_text()
    copy = tmp_path / "vmafx-agent.service"
    copy.write_text(unit.replace("/opt/vmafx/bin/vmafx", sys.executable).replace("User=vmafx", "User=root"))
    done = subprocess.run([systemd, "verify", "--man=no", copy], capture_output=True, text=True, check=False)
    assert "vmafx-agent" not in done.stderr, done.stderr


PAGES = sorted(page.name for page in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *(f"docs/{name}" for name in PAGES)])
def test_links_have_a_target(page: str) -> None:
    here = ROOT / page
    links = re.findall(r"\]\((?!https:)([^)#]*)(?:#([^)]+))?\)", here.read_text())
    targets = [(here.parent / path if path else here, anchor) for path, anchor in links]
    assert [path for path, _ in targets if not path.exists()] == []
    assert [(path, anchor) for path, anchor in targets if anchor and anchor not in anchors(path)] == []


def anchors(page: Path) -> set[str]:
    """The anchors of all headings, as GitHub generates them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_links_every_page() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [name for name in PAGES if f"](docs/{name})" not in readme] == []


@pytest.mark.parametrize("page", ["clips.md", "sizing.md"])
def test_the_api_server_accepts_the_manifests(page: str, client: Client, kubectl: Kubectl, tmp_path: Path) -> None:
    manifests = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert manifests
    (tmp_path / "all.yaml").write_text("---\n".join(manifests))
    done = kubectl("apply", "--dry-run=server", "-f", str(tmp_path / "all.yaml"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("created") == len(manifests)
