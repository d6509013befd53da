"""What the documentation shows, does what it says."""

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


async def test_the_clients_example(
    client: Client, cluster: DevCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/client.md").read_text(), re.DOTALL)
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    names: dict[str, Any] = {}
    exec(compile(code, "docs/client.md", "exec"), names)  # noqa: S102 - our own documentation
    await names["main"]()
    assert capsys.readouterr().out == "Pending\ndoc\n"


def test_an_agent_may_write_the_status_of_its_own_node_and_nothing_else(
    client: Client, kubectl: Kubectl, namespace: str
) -> None:
    page = (ROOT / "docs/agents.md").read_text()
    commands = re.findall(r"^    kubectl (create (?:serviceaccount|role|rolebinding|token) .*)$", page, re.MULTILINE)
    assert len(commands) == 4
    for command in commands:
        words = command.replace("=default:", f"={namespace}:").removesuffix(" > token").split()
        done = kubectl(*words)
        assert done.returncode == 0, done.stderr

    def may(verb: str, what: str, *more: str) -> bool:
        who = f"--as=system:serviceaccount:{namespace}:workstation-7"
        return kubectl("auth", "can-i", verb, what, *more, who).stdout.strip() == "yes"

    own = ("vmafxnodes.vmafx.dev/workstation-7", "--subresource=status")
    until(lambda: may("patch", *own), "the server has read the role and its binding")
    assert not may("patch", "vmafxnodes.vmafx.dev/another", "--subresource=status")
    assert not may("patch", "vmafxnodes.vmafx.dev/workstation-7")
    assert not may("get", "vmafxjobs.vmafx.dev")


def test_the_token_is_for_nobody_else_and_not_for_git() -> None:
    page = (ROOT / "docs/agents.md").read_text()
    assert re.search(r"^    umask 077.*\n    kubectl create token .* > token$", page, re.MULTILINE)
    assert "/token" in (ROOT / ".gitignore").read_text().splitlines()


def test_no_example_changes_the_node_that_the_page_sets_up() -> None:
    names = [yaml.safe_load(path.read_text())["metadata"]["name"] for path in (ROOT / "examples").glob("node-*.yaml")]
    assert "workstation-7" not in names
    assert "--name workstation-7" in (ROOT / "docs/agents.md").read_text()


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    systemd = shutil.which("systemd-analyze")
    if systemd is None:
        pytest.skip("there is no systemd here")
    unit = (ROOT / "deploy/systemd/vmafx-agent.service").read_text()
    here = tmp_path / "vmafx-agent.service"
    here.write_text(unit.replace("/opt/vmafx/bin/vmafx", sys.executable).replace("User=vmafx", "User=root"))
    done = subprocess.run([systemd, "verify", "--man=no", here], capture_output=True, text=True, check=False)
    assert "vmafx-agent" not in done.stderr, done.stderr


PAGES = sorted(page.name for page in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *(f"docs/{name}" for name in PAGES)])
def test_links_lead_somewhere(page: str) -> None:
    here = ROOT / page
    links = re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", here.read_text())
    targets = [(here.parent / path if path else here, anchor) for path, anchor in links]
    assert [path for path, _ in targets if not path.exists()] == []
    assert [(path, anchor) for path, anchor in targets if anchor and anchor not in anchors(path)] == []


def anchors(page: Path) -> set[str]:
    """Of each heading, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_links_every_page() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [name for name in PAGES if f"](docs/{name})" not in readme] == []


@pytest.mark.parametrize("page", ["clips.md", "sizing.md"])
def test_the_server_accepts_the_manifests_of(page: str, client: Client, kubectl: Kubectl, tmp_path: Path) -> None:
    manifests = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)
    assert manifests
    (tmp_path / "all.yaml").write_text("---\n".join(manifests))
    done = kubectl("apply", "--dry-run=server", "-f", str(tmp_path / "all.yaml"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("created") == len(manifests)
