"""Hardened HTTP servers for every role: everything that a client can send has a limit.

This package does not know what a request means, who may send it (vmafx.auth does), Kubernetes or protobuf.

    address.py       the address a server listens on
    errors.py        StatusError: gRPC status codes and their HTTP statuses
    limits.py        limits of the server and of uploads
    probe_server.py  probes and metrics on httptools, for roles that must stay small
    request.py       the request that a handler gets: parameters, headers, peer, body
    responses.py     the responses that a handler returns: whole ones and JSON streams
    server.py        routes with handlers, probes, streams and uploads on aiohttp
    strict_json.py   JSON parsed strictly
    uploads.py       bodies and forms received as unnamed files
"""
