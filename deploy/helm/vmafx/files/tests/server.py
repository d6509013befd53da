"""`helm test`: the scoring server is ready, scores an uploaded clip, and asks for keys if it should."""

import json
import ssl
import sys
import time
import urllib.error
import urllib.request

seconds, url, auth = float(sys.argv[1]), sys.argv[2], sys.argv[3]
deadline = time.monotonic() + seconds
width, height, frames = 320, 180, 12
trust = ssl.create_default_context()
trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE  # the names of the certificate are not known here


def fetch(path, body=None, headers=None):
    """The status and the body of an answer."""
    request = urllib.request.Request(url + path, body, headers or {})
    timeout = max(1, min(70, deadline - time.monotonic()))
    try:
        with urllib.request.urlopen(request, timeout=timeout, context=trust) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def clip(step):
    """Raw video, 4:2:0, of a moving pattern in brightnesses that are multiples of `step`."""
    chroma = bytes([128]) * (width * height // 2)
    planes = []
    for frame in range(frames):
        rows = range(height)
        values = (40 + (3 * x + 2 * frame) % 120 + (5 * y * (x // 16)) % 60 for y in rows for x in range(width))
        planes.append(bytes(value // step * step for value in values) + chroma)
    return b"".join(planes)


def form(parts):
    """The body of a form."""
    out = b""
    for name, (kind, content) in parts.items():
        file = f'; filename="{name}.yuv"' if kind == "application/octet-stream" else ""
        head = f'--part\r\nContent-Disposition: form-data; name="{name}"{file}\r\nContent-Type: {kind}\r\n\r\n'
        out += head.encode() + content + b"\r\n"
    return out + b"--part--\r\n"


while True:
    try:
        status, answer = fetch("/readyz")
    except OSError as error:
        status, answer = 0, str(error).encode()
    if status == 200:
        break
    assert time.monotonic() < deadline, f"{url}/readyz answers {status}: {answer.decode(errors='replace')}"
    time.sleep(1)
headers = {"Content-Type": "multipart/form-data; boundary=part", "Prefer": "wait=60"}
size = {"width": width, "height": height, "pixelFormat": "yuv420p", "frameRate": 25}
spec = {"referenceFormat": size, "distortedFormat": size}
body = form(
    {
        "spec": ("application/json", json.dumps(spec).encode()),
        "reference": ("application/octet-stream", clip(1)),
        "distorted": ("application/octet-stream", clip(32)),
    }
)
if auth != "none":
    status, _ = fetch("/v1/score", body, headers)
    assert status == 401, f"a request without credentials gets {status} instead of 401"
    print("requests without credentials are refused")
if auth == "keys":
    with open(sys.argv[4]) as keys:
        lines = [line.split() for line in keys if line.strip() and not line.lstrip().startswith("#")]
    headers["Authorization"] = f"Bearer {lines[0][1]}"
if auth != "token":  # the users of tokens are not known here
    status, answer = fetch("/v1/score", body, headers)
    while status == 202:
        assert time.monotonic() < deadline, f"no score within {seconds:g} s: {answer!r}"
        job = json.loads(answer)
        status, answer = fetch(f"/v1/jobs/{job['id']}?wait=30", headers={k: headers[k] for k in headers if k[0] == "A"})
        state = json.loads(answer)
        if status == 200 and state.get("result"):
            answer = json.dumps(state["result"]).encode()
        elif status == 200:
            assert state.get("state") in ("queued", "running"), f"the job ended without a score: {state}"
            status = 202
    assert status == 200, f"/v1/score answers {status}: {answer.decode(errors='replace')[:2000]}"
    score = json.loads(answer)["score"]
    assert 5 < score < 95, f"the score of a clip with few brightnesses is {score}"
    print(f"an uploaded clip was scored: VMAF {score:.2f}")
