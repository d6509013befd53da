"""What fields are declared with: documentation, validation messages, and the scalar types in common use.

Patterns are Python regular expressions that end with `\\Z`; schema.py translates them to RE2. A pattern with a message
becomes a CEL rule, so that the API server rejects a value with a sentence instead of a regex.
"""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

MESSAGE = "x-vmafx-message"  # with a pattern: the error for a value that does not match
EXTRA_RULE = "x-vmafx-extra-rule"  # with a pattern: a CEL expression to evaluate if the pattern matches
RULES = "x-kubernetes-validations"
INT32_MAX = 2**31 - 1
INT53_MAX = 2**53 - 1  # larger JSON numbers are not exact in every client


def doc(text: str) -> Meta:
    """The description of the field in `kubectl explain` and docs/api.md."""
    return Meta(description=text)


def pattern(regex: str, message: str, *, max_length: int) -> Meta:
    """A string that must match `regex`; other values are rejected with `message`."""
    return Meta(pattern=regex, max_length=max_length, extra_json_schema={MESSAGE: message})


def with_message(message: str, extra_rule: str) -> Meta:
    """Add a message, and a CEL expression that must hold too, to a type that already has a pattern."""
    return Meta(extra_json_schema={MESSAGE: message, EXTRA_RULE: extra_rule})


def schema(**extra: Any) -> Meta:
    """Extra keywords for the CRD schema; `x_kubernetes_y` becomes `x-kubernetes-y`."""
    return Meta(extra_json_schema={key.replace("_", "-"): value for key, value in extra.items()})


def rule(check: str, message: str) -> Meta:
    """A CEL rule on the field."""
    return Meta(extra_json_schema={RULES: [{"rule": check, "message": message}]})


# The rule rejects `[]`, which the server accepts as a date-time, and year 0, which Python cannot represent.
Time = Annotated[
    datetime,
    Meta(tz=True),
    rule("self >= timestamp('0001-01-01T00:00:00Z')", "must be an RFC 3339 time, such as 2026-05-28T12:30:15Z"),
]
Count = Annotated[int, Meta(ge=0, le=INT53_MAX), schema(format="int64")]
SmallCount = Annotated[int, Meta(ge=0, le=INT32_MAX), schema(format="int32")]
Positive = Annotated[int, Meta(ge=1, le=INT32_MAX), schema(format="int32")]
Seconds = Annotated[int, Meta(ge=0, le=INT32_MAX), schema(format="int64")]
NonNegative = Annotated[float, Meta(ge=0)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Generation = Annotated[int, Meta(ge=0, le=INT53_MAX), schema(format="int64")]

Identifier = Annotated[str, Meta(max_length=253)]
Message = Annotated[str, Meta(max_length=32768)]
MAX_URI = 2048  # characters
Url = Annotated[str, Meta(max_length=MAX_URI)]
Image = Annotated[str, Meta(min_length=1, max_length=1024)]
FileMode = Annotated[int, Meta(ge=0, le=0o777), schema(format="int32")]

_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"

ObjectName = Annotated[
    str,
    pattern(
        rf"^{_DNS_LABEL}(\.{_DNS_LABEL})*\Z",
        "must be a Kubernetes name: lowercase letters, digits, '-' and '.', such as my-secret",
        max_length=253,
    ),
]
Uri = Annotated[
    str,
    pattern(
        r"^[a-z][a-z0-9+.-]*://[^\x00-\x20\x7f]+\Z",
        "must be a URI with a scheme and no spaces, such as file:///clips/a.mp4, https://host/a.mp4 or s3://bucket/a.mp4",
        max_length=MAX_URI,
    ),
]
ModelName = Annotated[
    str,
    pattern(
        r"^([A-Za-z0-9][A-Za-z0-9._-]*|[a-z][a-z0-9+.-]*://[^\x00-\x20\x7f]+)\Z",
        "must be a model name, such as vmaf_v0.6.1, or a URI, such as file:///models/mine.json",
        max_length=MAX_URI,
    ),
]
POSITIVE_DURATION = "duration(self) > duration('0s')"
_GO_DURATION = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+\Z"
_positive_duration = with_message(
    "must be a duration greater than zero, such as 10s, 1m30s or 500ms", extra_rule=POSITIVE_DURATION
)
_DurationText = Annotated[str, Meta(pattern=_GO_DURATION, max_length=32)]
Duration = Annotated[_DurationText, _positive_duration]
DurationOrNanoseconds = Annotated[Annotated[int, Meta(ge=1, le=INT53_MAX)] | _DurationText, _positive_duration]

# At most two digits of exponent: with ten, the server takes minutes to evaluate the quantity.
_AMOUNT = r"[0-9]+(\.[0-9]+)?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
IS_QUANTITY = "isQuantity(self)"
POSITIVE_QUANTITY = "quantity(self).isGreaterThan(quantity('0'))"
POSITIVE_QUANTITY_OR_EMPTY = f"(self == '' || {POSITIVE_QUANTITY})"
_QuantityText = Annotated[str, Meta(pattern=rf"^{_AMOUNT}\Z", max_length=32)]
Quantity = Annotated[
    Annotated[int, Meta(ge=0, le=INT53_MAX)] | _QuantityText,
    with_message("must be a quantity, such as 500m, 4 or 16Gi", extra_rule=IS_QUANTITY),
]
PositiveQuantity = Annotated[
    Annotated[int, Meta(ge=1, le=INT53_MAX)] | _QuantityText,
    with_message("must be a quantity greater than zero, such as 500m, 4 or 16Gi", extra_rule=POSITIVE_QUANTITY),
]
PositiveQuantityOrNone = Annotated[
    Annotated[int, Meta(ge=1, le=INT53_MAX)] | Annotated[str, Meta(pattern=rf"^({_AMOUNT})?\Z", max_length=32)],
    with_message(
        "must be a quantity greater than zero, such as 500m, 4 or 16Gi, or empty for none",
        extra_rule=POSITIVE_QUANTITY_OR_EMPTY,
    ),
]

_LABEL_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = rf"^({_DNS_LABEL}(\.{_DNS_LABEL})*/)?{_LABEL_NAME}\Z"
LabelKey = Annotated[str, Meta(max_length=317, pattern=_LABEL_KEY)]
LabelValue = Annotated[
    str,
    pattern(
        rf"^({_LABEL_NAME})?\Z",
        "must be a label value: at most 63 letters, digits, '-', '_' and '.', such as rack-a",
        max_length=63,
    ),
]
Labels = Annotated[
    dict[LabelKey, LabelValue],
    Meta(max_length=16),
    rule(
        "self.all(key, key.matches('" + _LABEL_KEY.replace(r"\Z", "$").replace("\\", "\\\\") + "'))",
        "must have valid label keys, such as rack or example.com/rack",
    ),
]
VolumeName = Annotated[
    str,
    pattern(rf"^{_DNS_LABEL}\Z", "must consist of lowercase letters, digits and '-', such as corpus", max_length=63),
]
