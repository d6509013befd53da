"""`helm test`: the Pushgateway keeps what is pushed."""

import sys
import urllib.request

seconds, url = float(sys.argv[1]), sys.argv[2]
group = f"{url}/metrics/job/helm-test"


def fetch(address, method="GET", body=None):
    """The body of an answer."""
    request = urllib.request.Request(address, body, method=method)
    with urllib.request.urlopen(request, timeout=min(10, seconds)) as answer:
        return answer.read().decode()


fetch(group, "PUT", b"vmafx_helm_test 42\n")
pushed = [line for line in fetch(f"{url}/metrics").splitlines() if line.startswith("vmafx_helm_test{")]
fetch(group, "DELETE")
assert len(pushed) == 1 and pushed[0].endswith(" 42"), f"the pushed metric is {pushed}"
print("a pushed metric was read back")
