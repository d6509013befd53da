"""A typed asyncio client for the Kubernetes API.

This package holds configuration, credentials, the HTTP transport, the verbs and watches. Caches, queues and
reconcilers belong in runtime/.

    client.py       Client: one method per verb
    config.py       finds the configuration: kubeconfig or service account
    connect.py      dials the API server: DNS, TCP, TLS, proxy
    core.py         the built-in kinds that vmafx uses
    credentials.py  Authorization headers, and why the server rejects them
    decoding.py     JSON to objects and list pages
    errors.py       the tree of errors
    fetch.py        a single HTTP request to any URL
    http1.py        HTTP/1.1 connections and their pool
    kubeconfig.py   kubeconfig files, read and merged as kubectl does
    lookup.py       name lookups in threads
    metrics.py      request metrics with client-go's names
    plugins.py      tokens from exec plugins and OIDC providers
    resources.py    resources, their URL paths, and discovery
    tls.py          TLS contexts
    transport.py    requests to one API server, with retries
    watch.py        watches that resume after a broken connection
"""

from vmafx.kube.client import Client
from vmafx.kube.config import Config, load_config
from vmafx.kube.core import CRDS, NAMESPACES
from vmafx.kube.resources import INFERENCE_SERVICES, JOBS, NODES, TRAININGS, ObjectKey, Resource, key_of

__all__ = [
    "CRDS",
    "INFERENCE_SERVICES",
    "JOBS",
    "NAMESPACES",
    "NODES",
    "TRAININGS",
    "Client",
    "Config",
    "ObjectKey",
    "Resource",
    "key_of",
    "load_config",
]
