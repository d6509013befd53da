"""Authentication and authorization of callers, for every server of vmafx.

This package knows no particular service or call, and importing it imports neither aiohttp nor grpc.

    access.py        authenticates and authorizes callers; logs rejected calls
    cache.py         expiring caches, shared calls and limits on failures
    callers.py       who calls a server, and what is theirs
    certificates.py  a server's TLS certificates, reloaded when their files change
    credentials.py   the credentials of a call: bearer token or client certificate, by HTTP and by gRPC
    fair_limit.py    limits shared fairly between addresses or callers
    fair_queue.py    FairQueue: callers take turns
    keys.py          callers known by API keys in a file
    reviews.py       TokenReview and SubjectAccessReview requests to the API server
    signing_key.py   signing keys in Secrets
    streams.py       streams that end when their caller loses its permission
"""
