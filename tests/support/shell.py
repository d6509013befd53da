"""Shell commands as a page of the documentation prints them."""

import asyncio
from pathlib import Path

import yaml

from vmafx.devcluster import DevCluster


async def run_shell(command: str, folder: Path, environment: dict[str, str]) -> str:
    """The output of a shell command, which must succeed."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "bash", "-euo", "pipefail", "-c", command, cwd=folder, env=environment, stdout=pipe, stderr=pipe
    )
    out, err = await process.communicate()
    assert process.returncode == 0, f"{command}: {err.decode()}"
    return out.decode()


def write_kubeconfig(cluster: DevCluster, namespace: str, path: Path) -> None:
    """Write a kubeconfig whose default namespace is this one."""
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    for one in config["contexts"]:
        one["context"]["namespace"] = namespace
    path.write_text(yaml.safe_dump(config))
