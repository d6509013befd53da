"""A real OCI registry on this machine, for the demo and the tests: CNCF Distribution.

go.mod and go.sum pin its version.

    build.py    finds the binary: on PATH, in the cache, or built
    process.py  the registry as a process in a state folder
"""

from vmafx.devcluster.registry.build import find_registry
from vmafx.devcluster.registry.process import OciRegistry, configuration

__all__ = ["OciRegistry", "configuration", "find_registry"]
