"""`make e2e`: prepares this machine and runs the tests of the image and those that need a cluster with real nodes.

Further arguments are those of pytest; `-m quick` runs the short form, and `--prepare` alone runs none. Ends with status
77 where the machine cannot run the cluster or build the image.
"""

import os
import subprocess
import sys

from tests.e2e.cluster.binaries import find_binaries
from tests.e2e.cluster.errors import UNSUITABLE, MachineUnsuitable
from tests.e2e.cluster.requirements import check_machine, install_packages, missing_packages
from tests.e2e.image import built_image
from tests.support.chart import helm_path
from tests.support.gateway.build import find_envoy_gateway
from tests.support.image.buildah import BuildFailed, missing_requirement
from tests.support.project import ROOT
from vmafx.devcluster.errors import DevClusterError
from vmafx.devcluster.progress import PlainProgress

PREPARE = "--prepare"
PROGRAMS = {  # of the product's tests, by program: the Debian package
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "prometheus": "prometheus",
    "prometheus-pushgateway": "prometheus-pushgateway",
}


def main(arguments: list[str]) -> int:
    progress = PlainProgress()
    try:
        install_packages(progress, PROGRAMS)
        check_machine()
        _check_programs()
        # Before the tests, which have a time limit. The image waits for downloads, while .ci/run compiles the rest.
        built_image(progress=progress)
        find_binaries(progress)
        helm_path()
        find_envoy_gateway(progress)
    except MachineUnsuitable as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return UNSUITABLE
    except (DevClusterError, BuildFailed) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    if arguments == [PREPARE]:
        return 0
    command = [sys.executable, "-m", "pytest", "--numprocesses=0", "-m", "cluster or image", "tests/e2e", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ, check=False).returncode


def _check_programs() -> None:
    """Raise MachineUnsuitable if the image cannot be built, or a program of the tests is missing."""
    if missing := missing_packages(PROGRAMS):
        raise MachineUnsuitable(f"programs are missing: on Debian, apt-get install {' '.join(missing)}")
    if reason := missing_requirement():
        raise MachineUnsuitable(f"this machine cannot build the image: {reason}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
