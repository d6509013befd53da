"""Protobuf messages built from a table of names, numbers and types, as a client with a proto of its own has them."""

from collections.abc import Mapping

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

SCALARS = {
    "string": FieldDescriptorProto.TYPE_STRING,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "double": FieldDescriptorProto.TYPE_DOUBLE,
    "uint32": FieldDescriptorProto.TYPE_UINT32,
    "uint64": FieldDescriptorProto.TYPE_UINT64,
}
MAP = "map<string, double>"

Fields = Mapping[int, tuple[str, str]]  # name and type by number; `ONEOF TYPE` for a member of a oneof


def file_descriptor(
    package: str, messages: Mapping[str, Fields], enums: Mapping[str, Mapping[int, str]]
) -> FileDescriptor:
    """The messages in a pool of their own."""
    file = FileDescriptorProto(name="table.proto", package=package, syntax="proto3")
    for name, values in enums.items():
        enum = file.enum_type.add(name=name)
        for number, value in values.items():
            enum.value.add(name=value, number=number)
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in fields.items():
            _add_field(message, f".{package}.", field, number, kind, enums)
    pool = DescriptorPool()
    pool.Add(file)
    return pool.FindFileByName(file.name)


def _add_field(
    message: DescriptorProto, prefix: str, name: str, number: int, kind: str, enums: Mapping[str, object]
) -> None:
    field = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if kind == MAP:
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        for at, (part, scalar) in enumerate((("key", "string"), ("value", "double")), start=1):
            entry.field.add(name=part, number=at, label=FieldDescriptorProto.LABEL_OPTIONAL, type=SCALARS[scalar])
        field.label, field.type = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f"{prefix}{message.name}.{entry.name}"
        return
    oneof, _, plain = kind.rpartition(" ")
    if oneof:
        if not message.oneof_decl:
            message.oneof_decl.add(name=oneof)
        field.oneof_index = 0
    if plain in SCALARS:
        field.type = SCALARS[plain]
    else:
        field.type = FieldDescriptorProto.TYPE_ENUM if plain in enums else FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f"{prefix}{plain}"
