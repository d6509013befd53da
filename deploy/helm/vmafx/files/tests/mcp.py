"""`helm test`: the MCP server opens a session, lists its tools, and answers a call of one."""

import json
import ssl
import sys
import time
import urllib.error
import urllib.request

seconds, url, auth = float(sys.argv[1]), sys.argv[2], sys.argv[3]
headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
trust = ssl.create_default_context()
trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE  # the names of the certificate are not known here


def send(method, parameters=None, number=None):
    """The status and the result of a request; a notification has no number."""
    message = {"jsonrpc": "2.0", "method": method, "params": parameters or {}}
    if number is not None:
        message["id"] = number
    request = urllib.request.Request(f"{url}/mcp", json.dumps(message).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=seconds, context=trust) as answer:
            if session := answer.headers.get("Mcp-Session-Id"):
                headers["Mcp-Session-Id"] = session
            text = answer.read().decode()
            status = answer.status
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    messages = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")] or [text]
    found = [json.loads(one) for one in messages if one]
    return status, next((one["result"] for one in found if one.get("id") == number and "result" in one), found)


deadline = time.monotonic() + seconds
while True:
    try:
        urllib.request.urlopen(f"{url}/readyz", timeout=10, context=trust).close()
        break
    except OSError as error:
        assert time.monotonic() < deadline, f"{url}/readyz does not answer: {error}"
        time.sleep(1)
hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "helm-test", "version": "1"}}
if auth != "none":
    status, answer = send("initialize", hello, 0)
    assert status == 401, f"a request without credentials gets {status} instead of 401"
    print("requests without credentials are refused")
if auth == "keys":
    with open(sys.argv[4]) as keys:
        lines = [line.split() for line in keys if line.strip() and not line.lstrip().startswith("#")]
    headers["Authorization"] = f"Bearer {lines[0][1]}"
if auth != "token":  # the users of tokens are not known here
    status, answer = send("initialize", hello, 1)
    assert status == 200 and "serverInfo" in answer, f"initialize answers {status}: {answer}"
    headers["MCP-Protocol-Version"] = answer["protocolVersion"]
    status, _ = send("notifications/initialized")
    assert status == 202, f"the notification gets {status}"
    status, answer = send("tools/list", {}, 2)
    tools = {tool["name"] for tool in answer["tools"]}
    assert {"score", "compare", "explain_score"} <= tools, f"the tools are {sorted(tools)}"
    status, answer = send("tools/call", {"name": "list_nodes", "arguments": {}}, 3)
    assert status == 200 and not answer.get("isError"), f"list_nodes answers {status}: {answer}"
    print(f"a session was opened; {len(tools)} tools; list_nodes: {answer['content'][0]['text'][:300]}")
