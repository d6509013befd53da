"""`python -m tests.e2e.cluster [COMMAND...]`: runs a command, else a shell, whose kubectl uses a new cluster.

The cluster ends with the command. Its image of small commands is localhost/probe:1.
"""

import os
import signal
import subprocess
import sys
from types import FrameType

from tests.e2e.cluster import Cluster, E2EError, MachineUnsuitable
from tests.e2e.cluster.errors import UNSUITABLE
from tests.e2e.cluster.requirements import install_packages
from vmafx.devcluster.errors import DevClusterError
from vmafx.devcluster.progress import PlainProgress


def main(command: list[str]) -> int:
    progress = PlainProgress()
    signal.signal(signal.SIGTERM, _end)
    try:
        install_packages(progress)
        with Cluster(progress) as cluster:
            path = os.pathsep.join((str(cluster.kubectl_path.parent), os.environ.get("PATH", os.defpath)))
            environment = {**os.environ, **cluster.environment, "PATH": path}
            shell = [os.environ.get("SHELL", "/bin/sh")]
            return subprocess.run(command or shell, env=environment, check=False).returncode
    except (E2EError, DevClusterError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return UNSUITABLE if isinstance(error, MachineUnsuitable) else 1


def _end(_number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
