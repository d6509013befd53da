"""Each role imports only the modules that it uses, so that it starts fast and stays small."""

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
    "module", ["vmafx.api.kinds", "vmafx.kube", "vmafx.operator.main", "vmafx.generate.roles", "vmafx.fleet.watch"]
)
def test_a_light_package_imports_no_heavy_one(module: str) -> None:
    code = f"import sys, {module}; print(*sorted(name for name in sys.modules if '.' not in name))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "msgspec" in loaded
    assert HEAVY & set(loaded) == set()


@pytest.mark.parametrize(
    "module",
    ["vmafx.cli.roles", "vmafx.serving.main", "vmafx.worker.main", "vmafx.agent.main", "vmafx.controller.main"],
)
def test_only_the_mcp_server_imports_its_sdk(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"mcp", "mcp_types", "pydantic", "starlette", "anyio", "httpx2"} & set(loaded) == set()


def test_without_its_sdk_the_mcp_server_says_how_to_install_it() -> None:
    code = 'import sys; sys.modules["mcp"] = None; sys.argv = ["vmafx", "mcp"]; from vmafx.cli.main import main; main()'
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    expected = "error: `vmafx mcp` needs the MCP SDK; install it: pip install 'vmafx[mcp]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", expected)


def test_the_operator_imports_grpc_only_to_poll_a_foreign_controller() -> None:
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
    await ControllerPoller("c:1", print).run()  # ends at once, without jobs to poll
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
        ("vmafx.rpc.server, vmafx.rpc.middleware", HEAVY - {"grpc", "google"}),
    ],
)
def test_a_server_imports_only_its_own_protocol(modules: str, without: set[str]) -> None:
    code = f"import sys, {modules}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert without & set(loaded) == set()


def test_the_agent_imports_neither_the_kubernetes_client_nor_the_scorer() -> None:
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


def test_samples_cost_a_worker_no_heavy_module() -> None:
    code = "import sys, vmafx.worker.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "vmafx.training.samples" in loaded
    assert {"numpy", "grpc", "google", "vmafx.kube"} & set(loaded) == set()


@pytest.mark.parametrize("module", ["vmafx.cli.score", "vmafx.operator.main", "vmafx.worker.main"])
def test_only_fleet_commands_import_the_fleet(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "vmafx.api.scoring" in loaded
    assert [name for name in loaded if name.startswith("vmafx.fleet") or name == "vmafx.scheduling.forecast"] == []


@pytest.mark.parametrize(
    "module",
    [
        "vmafx.operator.main", "vmafx.controller.main", "vmafx.agent.main", "vmafx.worker.main", "vmafx.cli.score",
        "vmafx.demo.main", "vmafx.reports", "vmafx.reports.rate_quality",
    ],
)  # fmt: skip
def test_matplotlib_is_imported_only_to_draw(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert module in loaded
    assert [name for name in loaded if name.startswith(("matplotlib", "numpy", "PIL"))] == []


def test_one_module_imports_matplotlib() -> None:
    """It configures matplotlib to ignore the user's settings."""
    found = [
        path
        for path in SOURCE.rglob("*.py")
        if re.search(r"^\s*(import|from) matplotlib", path.read_text(), re.MULTILINE)
    ]
    assert found == [SOURCE / "reports" / "canvas.py"]


def test_the_api_imports_neither_aiohttp_nor_asyncio() -> None:
    code = "import sys, vmafx.api.crd; print('aiohttp' in sys.modules, 'asyncio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == (
        "False False\n"
    )


def test_the_operator_enables_garbage_collection_after_its_start() -> None:
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
