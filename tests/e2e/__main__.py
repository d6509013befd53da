"""`make e2e`: prepares this machine and runs the tests that need a cluster with real nodes.

Further arguments are those of pytest. Ends with status 77 where the machine cannot run the cluster.
"""

import os
import subprocess
import sys

from tests.e2e.cluster.binaries import find_binaries
from tests.e2e.cluster.errors import MachineUnsuitable
from tests.e2e.cluster.requirements import check_machine, install_packages
from tests.support.project import ROOT
from vmafx.devcluster.errors import DevClusterError
from vmafx.devcluster.progress import PlainProgress

UNSUITABLE = 77  # as of tests that cannot run, in Automake


def main(arguments: list[str]) -> int:
    progress = PlainProgress()
    try:
        install_packages(progress)
        check_machine()
        find_binaries(progress)  # before the tests, which have a time limit
    except MachineUnsuitable as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return UNSUITABLE
    except DevClusterError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    command = [sys.executable, "-m", "pytest", "--numprocesses=0", "-m", "cluster", "tests/e2e", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
