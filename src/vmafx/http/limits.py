"""Limits of the HTTP server and of uploads: bytes, seconds and counts."""

import msgspec


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a server, for each request unless stated otherwise."""

    connections: int = 1024  # open at the same time
    first_line_bytes: int = 8 << 10
    header_bytes: int = 9 << 10  # of one header: room for `Bearer` and a token
    headers: int = 64
    body_bytes: int = 1 << 20  # of a JSON body; uploads have their own limits
    body_seconds: float = 20.0  # to receive a JSON body
    idle_seconds: float = 90.0  # between requests, and to receive the headers of one
    handshake_seconds: float = 10.0  # of TLS
    answer_seconds: float = 30.0  # for a handler, in addition to a long poll's wait
    wait_seconds: float = 60.0  # the longest wait of a long poll
    first_object_seconds: float = 5.0  # of a stream, before its headers are sent without waiting longer
    idle_event_seconds: float = 15.0  # of an event stream without events, until a comment is sent
    write_seconds: float = 30.0  # for the client to read what was written
    linger_seconds: float = 2.0  # before a client that is still sending is disconnected, so that it gets the response
    stop_seconds: float = 5.0  # for unfinished requests when the server stops


class UploadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one upload."""

    total_bytes: int = 128 << 30  # of the whole body, including boundaries and headers of parts
    file_bytes: int = 64 << 30
    files: int = 8
    parts: int = 32  # fields and files
    field_bytes: int = 16 << 10  # of a part that is not a file
    name_characters: int = 100
    part_header_bytes: int = 1 << 10  # of one header
    part_headers: int = 8
    stall_seconds: float = 30.0  # without receiving a byte
    block_seconds: float = 60.0  # to receive a block of 256 KiB, so that a slow client does not hold a connection
    reserve_bytes: int = 256 << 20  # of disk space left free
    folder: str = ""  # for the unnamed files; empty: the temporary folder
    linkable: bool = False  # whether files can get a name later


LIMITS, UPLOAD_LIMITS = ServerLimits(), UploadLimits()
