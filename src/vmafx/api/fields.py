"""The vocabulary fields are declared with: documentation, messages, and the scalar types that recur.

Patterns are written for Python (`\\Z` ends them); the schema generator turns them into the server's dialect, where a
pattern with a message becomes a CEL rule, so that a refused value is answered with a sentence and not with a regex.
"""

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta

MESSAGE = "x-vmafx-message"  # with a pattern: the sentence that answers a value that does not match
EXTRA_RULE = "x-vmafx-also"  # with a pattern: a CEL expression that must hold too, looked at only if the pattern does
RULES = "x-kubernetes-validations"
INT32_MAX = 2**31 - 1
INT53_MAX = 2**53 - 1  # beyond it a JSON number is no longer exact everywhere


def doc(text: str) -> Meta:
    """What `kubectl explain` says of the field."""
    return Meta(description=text)


def pattern(regex: str, message: str, *, max_length: int) -> Meta:
    """A string that must match `regex`; a value that does not is refused with `message`."""
    return Meta(pattern=regex, max_length=max_length, extra_json_schema={MESSAGE: message})


def with_message(message: str, also: str) -> Meta:
    """Put a message, and a condition beyond the pattern, on a type that already has a pattern."""
    return Meta(extra_json_schema={MESSAGE: message, EXTRA_RULE: also})


def schema(**extra: Any) -> Meta:
    """Keywords for the CRD schema that have no meaning to msgspec; `x_kubernetes_y` becomes `x-kubernetes-y`."""
    return Meta(extra_json_schema={key.replace("_", "-"): value for key, value in extra.items()})


def rule(check: str, message: str) -> Meta:
    """A CEL rule on the field itself."""
    return Meta(extra_json_schema={RULES: [{"rule": check, "message": message}]})


# The rule is for `[]`, which the server takes for a date-time, and for the year 0, which Python has not.
Time = Annotated[
    datetime,
    Meta(tz=True),
    rule("self >= timestamp('0001-01-01T00:00:00Z')", "must be a time, such as 2026-05-28T12:30:15Z"),
]
Count = Annotated[int, Meta(ge=0, le=INT53_MAX), schema(format="int64")]
SmallCount = Annotated[int, Meta(ge=0, le=INT32_MAX), schema(format="int32")]
Positive = Annotated[int, Meta(ge=1, le=INT32_MAX), schema(format="int32")]
Seconds = Annotated[int, Meta(ge=0, le=INT32_MAX), schema(format="int64")]
NonNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1)]
Generation = Annotated[int, Meta(ge=0, le=INT53_MAX), schema(format="int64")]

Identifier = Annotated[str, Meta(max_length=253)]
Message = Annotated[str, Meta(max_length=32768)]
Url = Annotated[str, Meta(max_length=2048)]
Image = Annotated[str, Meta(min_length=1, max_length=1024)]
FileMode = Annotated[int, Meta(ge=0, le=0o777), schema(format="int32")]

_DNS_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"

ObjectName = Annotated[
    str,
    pattern(
        rf"^{_DNS_LABEL}(\.{_DNS_LABEL})*\Z",
        "must be a Kubernetes name: lower-case letters, digits, '-' and '.', such as my-secret",
        max_length=253,
    ),
]
Uri = Annotated[
    str,
    pattern(
        r"^[a-z][a-z0-9+.-]*://[^\x00-\x20\x7f]+\Z",
        "must be a URI with a scheme and no spaces, such as file:///clips/a.mp4, https://host/a.mp4 or s3://bucket/a.mp4",
        max_length=2048,
    ),
]
ModelName = Annotated[
    str,
    pattern(
        r"^([A-Za-z0-9][A-Za-z0-9._-]*|[a-z][a-z0-9+.-]*://[^\x00-\x20\x7f]+)\Z",
        "must be a model's name, such as vmaf_v0.6.1, or a URI, such as file:///models/mine.json",
        max_length=2048,
    ),
]
_GO_DURATION = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+\Z"
_longer_than_zero = with_message(
    "must be a duration greater than zero, such as 10s, 1m30s or 500ms", also="duration(self) > duration('0s')"
)
_DurationText = Annotated[str, Meta(pattern=_GO_DURATION, max_length=32)]
Duration = Annotated[_DurationText, _longer_than_zero]
DurationOrNanoseconds = Annotated[Annotated[int, Meta(ge=1, le=INT53_MAX)] | _DurationText, _longer_than_zero]

# Two digits of exponent are plenty; of ten, the server would go on computing the number for minutes.
_AMOUNT = r"[0-9]+(\.[0-9]+)?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
_MORE_THAN_ZERO = "quantity(self).isGreaterThan(quantity('0'))"
_QuantityText = Annotated[str, Meta(pattern=rf"^{_AMOUNT}\Z", max_length=32)]
Quantity = Annotated[
    Annotated[int, Meta(ge=0, le=INT53_MAX)] | _QuantityText,
    with_message("must be a quantity, such as 500m, 4 or 16Gi", also="isQuantity(self)"),
]
PositiveQuantity = Annotated[
    Annotated[int, Meta(ge=1, le=INT53_MAX)] | _QuantityText,
    with_message("must be a quantity greater than zero, such as 500m, 4 or 16Gi", also=_MORE_THAN_ZERO),
]
PositiveQuantityOrNone = Annotated[
    Annotated[int, Meta(ge=1, le=INT53_MAX)] | Annotated[str, Meta(pattern=rf"^({_AMOUNT})?\Z", max_length=32)],
    with_message(
        "must be a quantity greater than zero, such as 500m, 4 or 16Gi, or empty for none",
        also=f"(self == '' || {_MORE_THAN_ZERO})",
    ),
]

_LABEL_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL_KEY = rf"^({_DNS_LABEL}(\.{_DNS_LABEL})*/)?{_LABEL_NAME}\Z"
LabelKey = Annotated[str, Meta(max_length=317, pattern=_LABEL_KEY)]
LabelValue = Annotated[
    str,
    pattern(
        rf"^({_LABEL_NAME})?\Z",
        "must be a label's value: at most 63 letters, digits, '-', '_' and '.', such as rack-a",
        max_length=63,
    ),
]
Labels = Annotated[
    dict[LabelKey, LabelValue],
    Meta(max_length=16),
    rule(
        "self.all(key, key.matches('" + _LABEL_KEY.replace(r"\Z", "$").replace("\\", "\\\\") + "'))",
        "its keys must be labels, such as rack or example.com/rack",
    ),
]
VolumeName = Annotated[
    str, pattern(rf"^{_DNS_LABEL}\Z", "must be lower-case letters, digits and '-', such as corpus", max_length=63)
]
