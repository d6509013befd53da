"""A role pays only for what it uses."""

import re
import subprocess
import sys

import pytest

from tests.support.project import ROOT

HEAVY = {
    "kubernetes", "numpy", "torch", "typer", "rich", "structlog", "grpc", "google", "cryptography", "aiohttp",
    "matplotlib",
}  # fmt: skip
SOURCE = ROOT / "src" / "vmafx"


@pytest.mark.parametrize(
    "module", ["vmafx.api", "vmafx.kube", "vmafx.operator.main", "vmafx.generate.roles", "vmafx.fleet.watch"]
)
def test_a_package_does_not_import_what_is_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(name for name in sys.modules if '.' not in name))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "msgspec" in loaded
    assert HEAVY & set(loaded) == set()


def test_the_operator_follows_others_without_grpc_until_there_is_one_to_follow() -> None:
    code = """
import asyncio, sys
from vmafx.operator.job.external.poller import ExternalJobs, ControllerPoller
def loaded():
    return sorted({"grpc", "google"} & set(sys.modules))
async def main():
    task = asyncio.create_task(ExternalJobs("c:1", print).run())
    await asyncio.sleep(0)
    before = loaded()
    task.cancel()
    await ControllerPoller("c:1", print).run()  # with nobody to ask about, it ends
    print(before, loaded())
asyncio.run(main())
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "[] ['google', 'grpc']\n"


@pytest.mark.parametrize(
    ("modules", "without"),
    [
        ("vmafx.http.probe_server", HEAVY),
        ("vmafx.http.server, vmafx.http.uploads", (HEAVY - {"aiohttp"}) | {"vmafx.kube"}),
        ("vmafx.auth.credentials, vmafx.auth.access, vmafx.auth.access, vmafx.auth.certificates", HEAVY),
    ],
)
def test_a_server_pays_for_the_protocol_that_it_speaks(modules: str, without: set[str]) -> None:
    code = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert without & set(loaded) == set()


def test_an_agent_knows_nothing_of_kubernetes_and_scores_elsewhere() -> None:
    code = "import sys, vmafx.agent.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "grpc" in loaded
    assert (HEAVY - {"grpc", "google"}) & set(loaded) == set()
    others = ("vmafx.kube", "vmafx.fleet", "vmafx.worker", "vmafx.scheduling", "av")
    assert [name for name in loaded if name.startswith(others)] == []
    assert {name for name in loaded if name.startswith("vmafx.jobs.")} == {
        "vmafx.jobs.attempt",
        "vmafx.jobs.worker_process",
    }


@pytest.mark.parametrize("module", ["vmafx.cli.score", "vmafx.operator.main", "vmafx.worker.main"])
def test_only_people_who_look_at_the_fleet_pay_for_that(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "vmafx.api.job" in loaded
    assert [name for name in loaded if name.startswith("vmafx.fleet") or name == "vmafx.scheduling.forecast"] == []


@pytest.mark.parametrize(
    "module",
    [
        "vmafx.operator.main", "vmafx.controller.main", "vmafx.agent.main", "vmafx.worker.main", "vmafx.cli.score",
        "vmafx.demo.main", "vmafx.reports", "vmafx.reports.rate_quality",
    ],
)  # fmt: skip
def test_only_who_draws_pays_for_that(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert module in loaded
    assert [name for name in loaded if name.startswith(("matplotlib", "numpy", "PIL"))] == []


def test_one_module_imports_what_draws() -> None:
    """So that it is always imported without the user's settings."""
    found = [
        path
        for path in SOURCE.rglob("*.py")
        if re.search(r"^\s*(import|from) matplotlib", path.read_text(), re.MULTILINE)
    ]
    assert found == [SOURCE / "reports" / "canvas.py"]


def test_the_api_knows_no_network() -> None:
    code = "import sys, vmafx.api.crd; print('aiohttp' in sys.modules, 'asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == (
        "False False\n"
    )


def test_the_operator_collects_garbage_again_once_it_has_started() -> None:
    code = """
import gc, sys
sys.argv = ["vmafx-operator", "--help"]
from vmafx.operator.start import main
try:
    main()
except SystemExit:
    pass
print(gc.isenabled(), gc.get_freeze_count() > 1000)
"""
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "True True"
