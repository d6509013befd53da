"""Hardened gRPC servers for every role: everything that a client can send has a limit.

A servicer has a method for each call of its service. It takes the request and the caller's credentials, and returns a
message, or is an async generator of messages; where the client streams, the request is an async iterator of messages.
This package knows no particular service or role and no Kubernetes; vmafx.auth knows the callers.

    handlers.py    the calls of a servicer as gRPC handlers, and reflection
    health.py      the gRPC health service
    messages.py    the request messages of calls, awaited within limits
    middleware.py  metrics and limits around every call of a servicer
    server.py      the server: a port, its options, and the services on it
    service.py     what is served: a service, its limits, and the errors of its role
"""
