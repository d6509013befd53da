"""Specs of inference services, valid and not, for those tests that compare the library with the API server."""

from typing import Any, NamedTuple

from hypothesis import strategies as st
from msgspec import inspect as types

from vmafx.api.inference import ZerfooInferenceServiceSpec
from vmafx.api.meta import ApiModel
from vmafx.api.schema import struct_fields

SMALLEST = {"modelRef": "llama3-8b-q4"}
SECOND = 1_000_000_000  # nanoseconds
MODEL = "must be a model name or reference without spaces"
DURATION = "must be a duration greater than zero, such as 10s, 1m30s or 500ms"
QUANTITY = "must be a quantity greater than zero, such as 500m, 4 or 16Gi, or empty for none"
PATH = "must be a path that starts with /, such as /healthz"
MAX_BELOW_MIN = "maxReplicas must be greater than or equal to minReplicas, unless minReplicas is 0"
TIMEOUT = "timeout must be less than or equal to interval"


class Refused(NamedTuple):
    """A change to the smallest spec that makes it invalid; the field, and a part of the message that names it."""

    rule: str
    change: dict[str, Any]
    field: str
    message: str


def _health(**health: Any) -> dict[str, Any]:
    return {"healthCheck": health}


def _canary(**canary: Any) -> dict[str, Any]:
    return {"canary": {"modelRef": "other", **canary}}


def _steps(*weights: int) -> list[dict[str, Any]]:
    return [{"weight": weight, "pause": "1m"} for weight in weights]


REFUSED = (
    Refused("modelRef is set", {"modelRef": ""}, "spec.modelRef", MODEL),
    Refused("modelRef has no spaces", {"modelRef": "llama 3"}, "spec.modelRef", MODEL),
    Refused("modelRef is one line", {"modelRef": "llama3\n"}, "spec.modelRef", MODEL),
    Refused("replicas", {"replicas": 0}, "spec.replicas", "should be greater than or equal to 1"),
    Refused("replicas negative", {"replicas": -1}, "spec.replicas", "should be greater than or equal to 1"),
    Refused("replicas at most", {"replicas": 1001}, "spec.replicas", "should be less than or equal to 1000"),
    Refused("minReplicas", {"minReplicas": -1}, "spec.minReplicas", "should be greater than or equal to 0"),
    Refused("min <= max", {"minReplicas": 3, "maxReplicas": 2}, "spec", MAX_BELOW_MIN),
    Refused("min without max", {"minReplicas": 1}, "spec", MAX_BELOW_MIN),
    Refused("canary.modelRef is set", _canary(modelRef=""), "spec.canary.modelRef", MODEL),
    Refused(
        "canary.modelRef differs", _canary(modelRef="llama3-8b-q4"), "spec",
        "canary.modelRef must be different from modelRef",
    ),
    *(
        Refused(
            f"gpuMemory with {vendor}", {"gpuVendor": vendor, "resources": {"gpuMemory": memory}}, "spec",
            "resources.gpuMemory must be unset if gpuVendor is cpu or apple",
        )
        for vendor, memory in (("cpu", "1Gi"), ("apple", 1024))
    ),
    Refused("weight >= 0", _canary(weight=-1), "spec.canary.weight", "should be greater than or equal to 0"),
    Refused("weight <= 100", _canary(weight=101), "spec.canary.weight", "should be less than or equal to 100"),
    Refused("path is set", _health(path=""), "spec.healthCheck.path", PATH),
    Refused("path starts with /", _health(path="healthz"), "spec.healthCheck.path", PATH),
    Refused("interval is positive", _health(interval="0s"), "spec.healthCheck.interval", DURATION),
    Refused("interval in nanoseconds", _health(interval=0), "spec.healthCheck.interval", "greater than or equal to 1"),
    Refused("interval is not empty", _health(interval=""), "spec.healthCheck.interval", DURATION),
    Refused("interval has a unit", _health(interval="10"), "spec.healthCheck.interval", DURATION),
    Refused("interval is not negative", _health(interval="-1s"), "spec.healthCheck.interval", DURATION),
    Refused("timeout is positive", _health(timeout="0.0s"), "spec.healthCheck.timeout", DURATION),
    Refused("timeout in nanoseconds", _health(timeout=-SECOND), "spec.healthCheck.timeout", "should be greater than"),
    Refused("timeout below 1 ns", _health(timeout="0.5ns"), "spec.healthCheck.timeout", DURATION),
    Refused("timeout parts below 1 ns", _health(timeout="0.6ns0.6ns"), "spec.healthCheck.timeout", DURATION),
    Refused("timeout <= interval", _health(interval="1s", timeout="1001ms"), "spec.healthCheck", TIMEOUT),
    Refused("timeout <= default interval", _health(timeout="11s"), "spec.healthCheck", TIMEOUT),
    Refused("default timeout <= interval", _health(interval="1s"), "spec.healthCheck", TIMEOUT),
    Refused(
        "timeout <= interval, integers", _health(interval=SECOND, timeout=SECOND + 1), "spec.healthCheck", TIMEOUT
    ),
    Refused("timeout <= interval, mixed", _health(interval=SECOND, timeout="1.5s"), "spec.healthCheck", TIMEOUT),
    Refused("timeout <= interval, mixed", _health(interval="1s", timeout=2 * SECOND), "spec.healthCheck", TIMEOUT),
    *(
        Refused(f"{name} {value!r}", {"resources": {name: value}}, f"spec.resources.{name}", QUANTITY)
        for name in ("cpu", "memory", "gpuMemory")
        for value in ("much", "0", "-1", "1Qi", "1 Gi", "1e999")
    ),
    *(
        Refused(f"{name} 0", {"resources": {name: 0}}, f"spec.resources.{name}", "should be greater than or equal to 1")
        for name in ("cpu", "memory", "gpuMemory")
    ),
    Refused("steps increase", _canary(weight=50, steps=_steps(25, 5)), "spec.canary", "strictly increasing weights"),
    Refused("steps differ", _canary(weight=50, steps=_steps(5, 5)), "spec.canary", "strictly increasing weights"),
    Refused(
        "steps <= weight", _canary(weight=10, steps=_steps(5, 25)), "spec.canary",
        "steps must have weights less than or equal to the weight of the canary",
    ),
    Refused(
        "step weight", _canary(weight=10, steps=_steps(-1)), "spec.canary.steps[0].weight",
        "should be greater than or equal to 0",
    ),
    Refused("steps at most", _canary(weight=100, steps=_steps(*range(17))), "spec.canary.steps", "at most 16 items"),
    Refused(
        "step pause", _canary(weight=5, steps=[{"weight": 5, "pause": "0s"}]), "spec.canary.steps[0].pause", DURATION
    ),
    Refused(
        "gates.maxErrorRate", _canary(gates={"maxErrorRate": 1.5}), "spec.canary.gates.maxErrorRate",
        "should be less than or equal to 1",
    ),
    Refused("port", {"port": 0}, "spec.port", "should be greater than or equal to 1"),
    Refused("port at most", {"port": 65536}, "spec.port", "should be less than or equal to 65535"),
    Refused(
        "gpuVendor", {"gpuVendor": "voodoo"}, "spec.gpuVendor",
        'Unsupported value: "voodoo": supported values: "amd", "apple", "cpu", "intel", "nvidia"',
    ),
    Refused("image is not empty", {"image": ""}, "spec.image", "should be at least 1"),
)  # fmt: skip


# Changes to the smallest spec after which it is still valid.
ACCEPTED: tuple[dict[str, Any], ...] = (
    {},
    {"replicas": 1000, "port": 65535, "gpuVendor": "amd"},
    {"gpuVendor": "cpu", "resources": {"gpuMemory": ""}},
    {"minReplicas": 2, "maxReplicas": 2},
    {"minReplicas": 0, "maxReplicas": 5},
    {"maxReplicas": 0, "replicas": 3},
    {"resources": {}},
    {"resources": {"cpu": "", "memory": "16Gi"}},
    {"resources": {"cpu": 4, "gpuMemory": "24e9"}},
    {"resources": {"cpu": "0.1", "memory": "1e-3"}},
    {"canary": {"modelRef": "other"}},
    {"canary": {"modelRef": "other", "weight": 100}},
    {"canary": {"modelRef": "other", "weight": 5, "steps": [{"weight": 5, "pause": 1}]}},
    {"canary": {"modelRef": "other", "gates": {"maxErrorRate": 0, "maxLatencyP99": "1s", "minCorrelation": -1}}},
    {"healthCheck": {"path": "/", "interval": "1m", "timeout": "60s"}},
    {"healthCheck": {"interval": 2_000_000_000, "timeout": "2s"}},
    {"healthCheck": {"interval": "2s", "timeout": 2_000_000_000}},
    {"healthCheck": {"interval": "1h", "timeout": "0.5µs"}},
)


def unvalidated_spec(spec: dict[str, Any]) -> ZerfooInferenceServiceSpec:
    """The spec as a Struct, however invalid: what a program that builds Structs may pass."""
    made: ZerfooInferenceServiceSpec = _struct(ZerfooInferenceServiceSpec, spec)
    return made


def _struct(cls: type[Any], values: dict[str, Any]) -> Any:
    known = {field.name: field.type for field in struct_fields(cls)}
    return cls(**{name: _value(known[name], value) for name, value in values.items()})


def _value(kind: types.Type, value: Any) -> Any:
    match kind:
        case types.Metadata():
            return _value(kind.type, value)
        case types.UnionType() if isinstance(value, dict):
            return _value(next(part for part in kind.types if isinstance(part, types.StructType)), value)
        case types.StructType() if isinstance(value, dict):
            assert issubclass(kind.cls, ApiModel)
            return _struct(kind.cls, value)
        case types.VarTupleType():
            return tuple(_value(kind.item_type, item) for item in value)
    return value


def _mostly(valid: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Valid values, and one in ten that may not be, so that a spec with many fields is often accepted."""
    return st.integers(0, 9).flatmap(lambda number: valid if number else other)


def _fields(**optional: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=optional)


def _durations(least: int, most: int) -> st.SearchStrategy[int | str]:
    seconds = st.integers(least, most)
    valid = (
        seconds.map(lambda number: f"{number}s")
        | seconds.map(lambda number: number * SECOND)
        | st.integers(least * 1000, most * 1000).map(lambda number: f"{number}ms")
        | st.floats(least, most).map(lambda number: f"{number:.9f}s")
    )
    other = (
        st.from_regex(r"\A([0-9]{1,4}(\.[0-9]{1,3})?(ns|us|µs|ms|s|m|h)){1,2}\Z")
        | st.integers(-1, 2**53)
        | st.sampled_from(["2562047h47m16.854775807s", "2562047h47m16.854775808s", "", "0s", "-1s", "1", "1h1", "1.s"])
    )
    return _mostly(valid, other)


_models = _mostly(
    st.sampled_from(["other", "registry.example.com/vmaf:3", "x" * 512]),
    st.sampled_from(["llama3-8b-q4", "", "a b", "-a", "x" * 513]),
)
_quantities = _mostly(
    st.sampled_from(["", "4", "500m", "16Gi", 4])
    | st.from_regex(r"\A[1-9][0-9]{0,3}(\.[0-9]{1,3})?([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?\Z"),
    st.sampled_from(["0", 0, "0Gi", "0.0e5", ".5", "5.", "+1", "-1", "1Mb", "1e100", "9" * 32, "9" * 33]),
)
_weights = _mostly(st.integers(0, 100), st.sampled_from([-1, 101]))
_steps_given = st.lists(st.integers(0, 100), max_size=3, unique=True)
_canaries = st.fixed_dictionaries(
    {"modelRef": _models},
    optional={
        "weight": _weights,
        "steps": _mostly(_steps_given.map(sorted), _steps_given).map(lambda weights: _steps(*weights)),
        "gates": _fields(
            minRequests=_mostly(st.integers(0, 100), st.just(-1)),
            maxErrorRate=_mostly(st.floats(0, 1), st.floats(-0.1, 1.1)),
            maxLatencyP99=_durations(0, 3),
        ),
    },
)
SPECS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"modelRef": _mostly(st.just("llama3-8b-q4"), _models)},
    optional={
        "replicas": _mostly(st.integers(1, 1000), st.sampled_from([-1, 0, 1001])),
        "minReplicas": _mostly(st.integers(0, 5), st.sampled_from([-1, 1001])),
        "maxReplicas": _mostly(st.integers(5, 1000), st.integers(0, 5)),
        "resources": _fields(cpu=_quantities, memory=_quantities, gpuMemory=_quantities),
        "gpuVendor": _mostly(st.sampled_from(["nvidia", "amd", "intel", "apple", "cpu"]), st.just("voodoo")),
        "port": _mostly(st.integers(1, 65535), st.sampled_from([0, 65536])),
        "canary": _canaries,
        "healthCheck": _fields(
            path=_mostly(st.sampled_from(["/", "/healthz", "/ready?deep=1"]), st.sampled_from(["healthz", "", "/a b"])),
            interval=_durations(5, 20),
            timeout=_durations(1, 6),
        ),
        "image": _mostly(st.just("registry.example.com/serving:1"), st.sampled_from(["", "x" * 1025])),
    },
)
