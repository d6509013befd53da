"""`helm test`: the operator is ready, and counts its reconciliations."""

import sys
import time
import urllib.request

seconds, probes, metrics = float(sys.argv[1]), sys.argv[2], sys.argv[3]
deadline = time.monotonic() + seconds


def fetch(url):
    """The body of an answer."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def total(text, name):
    """The sum of a metric over its labels; None without it."""
    values = [float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith((name + "{", name + " "))]
    return sum(values) if values else None


while True:
    try:
        fetch(f"{probes}/readyz")
        break
    except OSError as error:
        assert time.monotonic() < deadline, f"the operator is not ready: {error}"
        time.sleep(1)
text = fetch(f"{metrics}/metrics")
reconciles = total(text, "controller_runtime_reconcile_total")
assert reconciles is not None, "the operator has no metric controller_runtime_reconcile_total"
nodes, jobs = total(text, "vmafx_nodes"), total(text, "vmafx_jobs")
print(f"the operator is ready: {reconciles:g} reconciliations, {nodes or 0:g} nodes, {jobs or 0:g} jobs")
