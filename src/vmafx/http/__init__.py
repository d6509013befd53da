"""Hardened HTTP servers for every role: everything that a client can send has a limit.

This package does not know what a request means, who may send it (vmafx.auth does), Kubernetes or protobuf.

    address.py       the address a server listens on
    errors.py        StatusError: gRPC status codes and their HTTP statuses
    events.py        server-sent events as bytes
    hosts.py         the names that a server answers to, and the web pages that may use it
    limits.py        limits of the server and of uploads
    lists.py         the parameters of a path that lists or streams objects
    openapi.py       the parts of OpenAPI documents that every server shares
    probe_server.py  probes and metrics on httptools, for roles that must stay small
    problems.py      errors as problem details (RFC 9457)
    request.py       the request that a handler gets: ID, parameters, headers, peer, body
    responses.py     the responses that a handler returns: whole ones, files, and streams of JSON or events
    sending.py       sends these responses with aiohttp
    server.py        routes with handlers, probes, streams and uploads on aiohttp
    strict_json.py   JSON parsed strictly
    uploads.py       bodies and forms received as unnamed files
"""
