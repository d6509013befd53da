"""Views of a Struct: the same fields, decoded without the validation that the API server has already done."""

import functools
import operator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import FieldInfo

from vmafx.api.meta import ApiModel


def unchecked(model: type[ApiModel], name: str) -> type[msgspec.Struct]:
    """A Struct with the fields and defaults of `model` but without its limits: validation is slower than decoding.

    Nested Structs are still validated. For type checkers the view is `model` itself, so assign it like this:

        if TYPE_CHECKING:
            JobSpecView = VmafxJobSpec
        else:
            JobSpecView = unchecked(VmafxJobSpec, "JobSpecView")
    """
    hints = get_type_hints(model)  # strips Annotated, at any depth
    fields = [
        (field.name, _without_literals(hints[field.name]), _default(field)) for field in msgspec.structs.fields(model)
    ]
    return msgspec.defstruct(name, fields, bases=(ApiModel,), module=model.__module__)


def _default(field: FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory, name=field.encode_name)
    return msgspec.field(default=field.default, name=field.encode_name)


def _without_literals(hint: Any) -> Any:
    """Replace a Literal with its type, so that values of a newer CRD can be read."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return type(args[0])
    if not args:
        return hint
    inner = tuple(arg if arg is Ellipsis else _without_literals(arg) for arg in args)
    return functools.reduce(operator.or_, inner) if origin in {Union, UnionType} else origin[inner]
