"""Requests to the API server, from its own metrics.

`apiserver_request_total` does not name the client. So the driver counts its own requests (one kind of POST and one kind
of PATCH), and these are subtracted. The API server's requests to itself concern other resources.
"""

import http.client
import re
from collections import Counter

from vmafx.kube import Config

RESOURCES = ("vmafxjobs", "vmafxnodes", "pods", "events")
WRITES, READS = ("POST", "PUT", "PATCH", "APPLY", "DELETE"), ("GET", "LIST")
_LINE = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<count>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

RequestCounts = Counter[tuple[str, str]]  # by verb and resource; a watch counts when it ends


def request_counts(config: Config) -> RequestCounts:
    """All requests so far."""
    host = config.server.removeprefix("https://")
    connection = http.client.HTTPSConnection(host, timeout=30, context=config.tls)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    counts: RequestCounts = Counter()
    for line in _LINE.finditer(text):
        labels = dict(_LABEL.findall(line["labels"]))
        counts[labels["verb"], labels["resource"]] += int(float(line["count"]))
    return counts


def total(counts: RequestCounts, verbs: tuple[str, ...], *resources: str) -> int:
    """The requests for these resources, or for those of jobs."""
    return sum(counts[verb, resource] for verb in verbs for resource in resources or RESOURCES)
