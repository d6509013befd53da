"""HTTP servers for every role, hardened: whoever reaches the port may send anything, so everything has a limit.

    address.py  where to listen
    pages.py    GET and HEAD on pages of text: probes and metrics, for roles that must stay small
    errors.py   why a request is refused: one code, by its names in gRPC and in HTTP

What a request means is not known here, nor who may send it (vmafx.auth).
"""
