"""What one caller, and all of them together, may ask of a server: bytes, seconds and numbers."""

import msgspec


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of a server."""

    connections: int = 1024  # at once
    first_line_bytes: int = 8 << 10
    header_bytes: int = 9 << 10  # of one: a token, and what stands before it
    headers: int = 64
    body_bytes: int = 1 << 20  # of JSON; uploads have limits of their own
    body_seconds: float = 20.0  # for a body to come
    idle_seconds: float = 90.0  # without a request, and for the headers of one
    handshake_seconds: float = 10.0  # of TLS
    answer_seconds: float = 30.0  # for a handler, beside what it was asked to wait
    wait_seconds: float = 60.0  # that a handler can be asked to wait
    first_object_seconds: float = 5.0  # of a stream; then its head is sent, since there may be nothing to say for long
    write_seconds: float = 30.0  # for a reader to take what there is for it
    linger_seconds: float = 2.0  # before a caller who still sends is cut off: an early answer has to arrive first
    stop_seconds: float = 5.0  # for requests in hand, at the end


class UploadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Of one upload."""

    total_bytes: int = 128 << 30  # of the body, with all that stands between files
    file_bytes: int = 64 << 30
    files: int = 8
    parts: int = 32  # fields and files
    field_bytes: int = 16 << 10  # of a field that is no file
    name_characters: int = 100
    part_header_bytes: int = 1 << 10  # of one
    part_headers: int = 8
    stall_seconds: float = 30.0  # without a byte
    block_seconds: float = 60.0  # for a block of 256 KiB: a caller slower than that keeps a connection for nothing
    reserve_bytes: int = 256 << 20  # of the disk, left free
    folder: str = ""  # where files without a name are made; empty: the temporary folder


LIMITS, UPLOAD_LIMITS = ServerLimits(), UploadLimits()
