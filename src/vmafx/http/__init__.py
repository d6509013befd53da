"""HTTP servers for every role, hardened: whoever reaches the port may send anything, so everything has a limit.

    server.py       routes with handlers, pages, streams and uploads, on aiohttp: `async with serve(address, site)`
    pages.py        GET and HEAD on pages of text, on httptools: probes and metrics, for roles that must stay small
    answers.py      what handlers answer with: pages, which both servers send, and streams
    request.py      what handlers get: parameters, headers, the peer, the body as JSON
    uploads.py      bodies and forms as files without a name
    strict_json.py  JSON from strangers
    limits.py       how much, how many, how long
    errors.py       why a request is refused: one code, by its names in gRPC and in HTTP
    answering.py    server.py's other half: from what handlers return or raise to what is sent
    address.py      where to listen

What a request means is not known here, nor who may send it (vmafx.auth), nor Kubernetes or protobuf.
"""
