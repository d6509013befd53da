"""What the API server was asked, by its own count.

`apiserver_request_total` does not tell who asked. So the driver counts what it sent (it sends one kind of POST and one
kind of PATCH) and that is taken off. What the API server asks of itself is of other resources than these.
"""

import http.client
import re
from collections import Counter

from vmafx.kube import Config

RESOURCES = ("vmafxjobs", "vmafxnodes", "pods", "events")
WRITES, READS = ("POST", "PUT", "PATCH", "APPLY", "DELETE"), ("GET", "LIST")
_LINE = re.compile(r"^apiserver_request_total\{(?P<labels>.*)\} (?P<count>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Asked = Counter[tuple[str, str]]  # by verb and resource; a watch counts when it ends


def asked(config: Config) -> Asked:
    """All requests so far."""
    host = config.server.removeprefix("https://")
    connection = http.client.HTTPSConnection(host, timeout=30, context=config.tls)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    counts: Asked = Counter()
    for line in _LINE.finditer(text):
        labels = dict(_LABEL.findall(line["labels"]))
        if labels["resource"] in RESOURCES:
            counts[labels["verb"], labels["resource"]] += int(float(line["count"]))
    return counts


def total(counts: Asked, verbs: tuple[str, ...], *resources: str) -> int:
    return sum(counts[verb, resource] for verb in verbs for resource in resources or RESOURCES)
