"""Who calls, and what they may do: tokens, client certificates, access reviews. Every server of vmafx uses these.

    credentials.py   what a caller shows: a token or a certificate, by HTTP and by gRPC
    doors.py         admits a caller for an action, or refuses
    reviews.py       asks the API server: TokenReview and SubjectAccessReview
    recent.py        answers kept for a while, asked for once, refused callers slowed down
    refusals.py      refused callers, in the log
    certificates.py  the certificates that a server shows and accepts, reloaded when their files change

No call of a particular service is known here. Importing any of it imports neither aiohttp nor grpc.
"""
