"""`helm test`: the controller is healthy, describes its API, and refuses callers without a token if it should."""

import json
import ssl
import sys
import time
import urllib.error
import urllib.request

seconds, url, auth = float(sys.argv[1]), sys.argv[2], sys.argv[3]
deadline = time.monotonic() + seconds
trust = ssl.create_default_context()
trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE  # the names of the certificate are not known here


def fetch(path):
    """The status and the body of an answer."""
    try:
        with urllib.request.urlopen(url + path, timeout=10, context=trust) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


for path in ("/healthz", "/readyz"):
    while True:
        try:
            status, answer = fetch(path)
        except OSError as error:
            status, answer = 0, str(error).encode()
        if status == 200:
            break
        assert time.monotonic() < deadline, f"{path} answers {status}: {answer.decode(errors='replace')}"
        time.sleep(1)
status, answer = fetch("/openapi.json")
assert status == 200 and "/v1/jobs" in json.loads(answer)["paths"], f"/openapi.json answers {status}"
status, answer = fetch("/v1/jobs?limit=1")
expected = 401 if auth == "token" else 200
assert status == expected, f"/v1/jobs without a token answers {status} instead of {expected}: {answer[:500]!r}"
print(f"the controller is healthy; a caller without a token gets {status}")
