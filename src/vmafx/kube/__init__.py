"""A typed asyncio client for the Kubernetes API: one verb, one method; one error, one type.

Here live configuration, credentials, transport, verbs and watches. Caches, queues and anything that decides do not.
"""

from vmafx.kube.client import Client
from vmafx.kube.config import Config, load_config
from vmafx.kube.core import CRDS, NAMESPACES
from vmafx.kube.resources import JOBS, NODES, SERVICES, TRAININGS, ObjectKey, Resource

__all__ = [
    "CRDS",
    "JOBS",
    "NAMESPACES",
    "NODES",
    "SERVICES",
    "TRAININGS",
    "Client",
    "Config",
    "ObjectKey",
    "Resource",
    "load_config",
]
