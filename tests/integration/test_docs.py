"""What the documentation shows, does what it says."""

import re
from pathlib import Path
from typing import Any

import pytest

from vmafx.devcluster import DevCluster
from vmafx.kube import Client

ROOT = Path(__file__).parents[2]


async def test_the_clients_example(
    client: Client, cluster: DevCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/client.md").read_text(), re.DOTALL)
    monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
    names: dict[str, Any] = {}
    exec(compile(code, "docs/client.md", "exec"), names)  # noqa: S102 - our own documentation
    await names["main"]()
    assert capsys.readouterr().out == "Pending\ndoc\n"


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").iterdir())]
)
def test_links_lead_somewhere(page: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text())
    assert [target for target in targets if not ((ROOT / page).parent / target).exists()] == []
