"""Compatibility with existing clients of the scoring server: the same names, numbers and types."""

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from vmafx.wire import scoring_pb2 as wire

PREFIX = "vmafx.v1."
FIRST_NEW_NUMBER = 100  # fields that vmafx adds to the original service
FEATURES = "map<string, double>"

# Every field of the original service: number, name, type.
MESSAGES = {
    "ScoreRequest": {1: ("reference", "string"), 2: ("distorted", "string"), 3: ("model", "string")},
    "ScoreResponse": {1: ("score", "double"), 2: ("features", FEATURES)},
    "StreamConfig": {
        1: ("width", "uint32"),
        2: ("height", "uint32"),
        3: ("pixel_format", "PixelFormat"),
        4: ("model", "string"),
        5: ("frame_count_hint", "uint32"),
    },
    "FramePair": {1: ("frame_index", "uint32"), 2: ("raw_reference", "bytes"), 3: ("raw_distorted", "bytes")},
    "ScoreStreamRequest": {1: ("config", "payload StreamConfig"), 2: ("frame_pair", "payload FramePair")},
    "FrameScore": {1: ("frame_index", "uint32"), 2: ("score", "double"), 3: ("features", FEATURES)},
    "AggregateScore": {
        1: ("frames_processed", "uint32"),
        2: ("score", "double"),
        3: ("features", FEATURES),
        4: ("elapsed_ms", "uint64"),
    },
    "ScoreStreamResponse": {1: ("frame_score", "payload FrameScore"), 2: ("aggregate", "payload AggregateScore")},
    "HealthRequest": {},
    "HealthResponse": {1: ("ok", "bool"), 2: ("message", "string")},
}
PIXEL_FORMATS = {
    0: "PIXEL_FORMAT_UNSPECIFIED",
    1: "PIXEL_FORMAT_YUV420P",
    2: "PIXEL_FORMAT_YUV422P",
    3: "PIXEL_FORMAT_YUV444P",
    4: "PIXEL_FORMAT_YUV420P10LE",
    5: "PIXEL_FORMAT_YUV422P10LE",
    6: "PIXEL_FORMAT_YUV444P10LE",
}
CALLS = {
    "/vmafx.v1.VmafxScoring/Score": ("ScoreRequest", "ScoreResponse"),
    "/vmafx.v1.VmafxScoring/ScoreStream": ("stream ScoreStreamRequest", "stream ScoreStreamResponse"),
    "/vmafx.v1.VmafxScoring/Health": ("HealthRequest", "HealthResponse"),
}
SCALARS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
}


def type_name(field: FieldDescriptor) -> str:
    """The type as a proto file has it, after the name of the oneof that the field is in."""
    message, enum = field.message_type, field.enum_type
    if message is not None and message.GetOptions().map_entry:
        key, value = (type_name(message.fields_by_name[name]) for name in ("key", "value"))
        return f"map<{key}, {value}>"
    named = message or enum
    kind = named.full_name.removeprefix(PREFIX) if named is not None else SCALARS[field.type]
    oneof = f"{field.containing_oneof.name} " if field.containing_oneof is not None else ""
    return f"{'repeated ' if field.is_repeated else ''}{oneof}{kind}"


def original_fields(message: Descriptor) -> dict[int, tuple[str, str]]:
    return {field.number: (field.name, type_name(field)) for field in message.fields if field.number < FIRST_NEW_NUMBER}


def test_messages_have_the_original_fields() -> None:
    messages = wire.DESCRIPTOR.message_types_by_name
    assert {name: original_fields(message) for name, message in messages.items()} == MESSAGES


def test_pixel_formats_have_the_original_numbers() -> None:
    assert {one.number: one.name for one in wire.DESCRIPTOR.enum_types_by_name["PixelFormat"].values} == PIXEL_FORMATS


def test_calls_have_the_original_types() -> None:
    def streamed(message: Descriptor, *, stream: bool) -> str:
        return f"{'stream ' if stream else ''}{message.full_name.removeprefix(PREFIX)}"

    service = wire.DESCRIPTOR.services_by_name["VmafxScoring"]
    assert {
        f"/{service.full_name}/{one.name}": (
            streamed(one.input_type, stream=one.client_streaming),
            streamed(one.output_type, stream=one.server_streaming),
        )
        for one in service.methods
    } == CALLS


def test_messages_have_the_original_bytes() -> None:
    """As written by hand from the encoding of protocol buffers: tag, length, value."""
    pair = wire.FramePair(frame_index=300, raw_reference=b"\x01\x02", raw_distorted=b"\x03")
    bytes_of_pair = b"\x08\xac\x02" + b"\x12\x02\x01\x02" + b"\x1a\x01\x03"
    assert pair.SerializeToString() == bytes_of_pair
    assert wire.ScoreStreamRequest(frame_pair=pair).SerializeToString() == b"\x12\x0a" + bytes_of_pair
    config = wire.StreamConfig(width=16, height=9, pixel_format=wire.PIXEL_FORMAT_YUV420P10LE, model="m")
    assert config.SerializeToString() == b"\x08\x10\x10\x09\x18\x04\x22\x01m"
    score = wire.ScoreResponse.FromString(b"\x09" + b"\x00" * 6 + b"\x59\x40" + b"\x12\x0d\x0a\x02ab\x11" + bytes(8))
    assert (score.score, dict(score.features)) == (100.0, {"ab": 0.0})
