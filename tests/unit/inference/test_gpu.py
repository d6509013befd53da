"""GPU demands: resources, node affinity as the scheduler evaluates it, and whether a node fits."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.api.hardware import Vendor
from vmafx.inference.gpu import (
    MEMORY_LABELS,
    PREFERRED,
    REQUIRED,
    SIZES,
    GpuDemand,
    GpuOptions,
    MemoryLabel,
    Unit,
)

OPTIONS = GpuOptions()
GIB = 1 << 30
NVIDIA_24 = {"nvidia.com/gpu.memory": "24576"}
AMD_64 = {"amd.com/gpu.vram": "64G"}
INTEL_16 = {"gpu.intel.com/memory.max": str(16 * GIB)}


def admits(affinity: dict[str, Any], labels: dict[str, str]) -> bool:
    """Evaluate required node affinity as kube-scheduler does: any term, all of its expressions."""
    if REQUIRED not in affinity:
        return True
    terms = affinity[REQUIRED]["nodeSelectorTerms"]
    return any(all(meets(one, labels) for one in term["matchExpressions"]) for term in terms)


def meets(expression: dict[str, Any], labels: dict[str, str]) -> bool:
    value, values = labels.get(expression["key"]), expression["values"]
    match expression["operator"]:
        case "In":
            assert values, "the API server refuses In without values"
            return value in values
        case "Gt":
            (limit,) = values
            return value is not None and value.isdecimal() and int(value) > int(limit)
    raise AssertionError(expression)


def demand(vendor: Vendor | None, memory: int | str | None) -> GpuDemand:
    made = GpuDemand.of(vendor, memory)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("vendor", "memory", "text"),
    [
        ("nvidia", None, "an NVIDIA GPU"),
        ("nvidia", "24Gi", "an NVIDIA GPU with 24Gi of memory"),
        (None, "24Gi", "a GPU with 24Gi of memory"),
        (None, 25769803776, "a GPU with 25769803776 of memory"),
        ("apple", None, "an Apple GPU"),
    ],
)
def test_a_demand_reads_as_a_phrase(vendor: Vendor | None, memory: int | str | None, text: str) -> None:
    assert str(demand(vendor, memory)) == text


@pytest.mark.parametrize(("vendor", "memory"), [(None, None), (None, ""), ("cpu", None), ("cpu", "24Gi")])
def test_no_gpu_is_needed(vendor: Vendor | None, memory: str | None) -> None:
    assert GpuDemand.of(vendor, memory) is None


@pytest.mark.parametrize(
    ("vendor", "resource"),
    [
        ("nvidia", "nvidia.com/gpu"),
        ("amd", "amd.com/gpu"),
        ("intel", "gpu.intel.com/i915"),
        ("apple", None),
        ("cpu", None),
        (None, None),
    ],
)
def test_the_resource_of_a_vendor(vendor: Vendor | None, resource: str | None) -> None:
    assert OPTIONS.resource(vendor) == resource
    assert GpuOptions("gpu.intel.com/xe").resource("intel") == "gpu.intel.com/xe"


@pytest.mark.parametrize(
    ("vendor", "memory", "expressions"),
    [
        ("nvidia", "24Gi", [{"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": ["24575"]}]),
        ("nvidia", "24G", [{"key": "nvidia.com/gpu.memory", "operator": "Gt", "values": ["22888"]}]),
        ("intel", "16Gi", [{"key": "gpu.intel.com/memory.max", "operator": "Gt", "values": [str(16 * GIB - 1)]}]),
        ("amd", "700Gi", [{"key": "amd.com/gpu.vram", "operator": "In", "values": ["700G", "768G", "1024G"]}]),
        ("apple", "16Gi", [{"key": "kubernetes.io/os", "operator": "In", "values": ["darwin"]}]),
        ("apple", None, [{"key": "kubernetes.io/os", "operator": "In", "values": ["darwin"]}]),
    ],
)
def test_memory_is_required(vendor: Vendor, memory: str | None, expressions: list[dict[str, Any]]) -> None:
    affinity = demand(vendor, memory).affinity(OPTIONS)
    assert affinity == {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


def test_memory_without_a_vendor_is_met_by_any_vendor() -> None:
    affinity = demand(None, "16Gi").affinity(OPTIONS)
    keys = [term["matchExpressions"][0]["key"] for term in affinity[REQUIRED]["nodeSelectorTerms"]]
    assert keys == [label.key for label in MEMORY_LABELS.values()]


@pytest.mark.parametrize("vendor", ["nvidia", "amd", "intel"])
def test_a_vendor_alone_is_preferred(vendor: Vendor) -> None:
    expression = {"key": MEMORY_LABELS[vendor].key, "operator": "Exists"}
    assert demand(vendor, None).affinity(OPTIONS) == {
        PREFERRED: [{"weight": 100, "preference": {"matchExpressions": [expression]}}]
    }


@pytest.mark.parametrize(
    ("vendor", "memory", "labels", "allocatable", "fits"),
    [
        ("nvidia", None, {}, {"nvidia.com/gpu": "1"}, True),
        ("nvidia", None, NVIDIA_24, {}, False),
        ("nvidia", None, {}, {"nvidia.com/gpu": "0"}, False),
        ("nvidia", "24Gi", NVIDIA_24, {"nvidia.com/gpu": "8"}, True),
        ("nvidia", "25Gi", NVIDIA_24, {"nvidia.com/gpu": "8"}, False),
        ("nvidia", "1Gi", {}, {"nvidia.com/gpu": "8"}, False),
        ("nvidia", "1Gi", {"nvidia.com/gpu.memory": "unknown"}, {"nvidia.com/gpu": "8"}, False),
        ("nvidia", "1Gi", AMD_64, {"nvidia.com/gpu": "8"}, False),
        ("amd", "64Gi", AMD_64, {"amd.com/gpu": "1"}, True),
        ("amd", "65Gi", AMD_64, {"amd.com/gpu": "1"}, False),
        ("intel", "16Gi", INTEL_16, {"gpu.intel.com/i915": "1"}, True),
        ("intel", "17179869185", INTEL_16, {"gpu.intel.com/i915": "1"}, False),
        (None, "16Gi", INTEL_16, {}, True),
        (None, "16Gi", AMD_64, {}, True),
        (None, "32Gi", NVIDIA_24 | INTEL_16, {}, False),
        ("apple", "16Gi", {"kubernetes.io/os": "darwin"}, {}, True),
        ("apple", None, {"kubernetes.io/os": "linux"}, {}, False),
    ],
)
def test_whether_a_node_fits(
    vendor: Vendor | None, memory: str | None, labels: dict[str, str], allocatable: dict[str, str], fits: bool
) -> None:
    assert demand(vendor, memory).fits(labels, allocatable, OPTIONS) == fits


units: st.SearchStrategy[Unit] = st.sampled_from(["1", "Mi", "G"])
options = st.builds(
    lambda nvidia, amd, intel: GpuOptions(
        memory_labels={
            "nvidia": MemoryLabel("nvidia.com/gpu.memory", nvidia),
            "amd": MemoryLabel("amd.com/gpu.vram", amd),
            "intel": MemoryLabel("gpu.intel.com/memory.max", intel),
        }
    ),
    units, units, units,
)  # fmt: skip
memories = (
    st.integers(1, 3000).map(lambda number: f"{number}Gi")
    | st.integers(1, 1 << 42)
    | st.from_regex(r"\A[1-9][0-9]{0,2}(\.[0-9])?(k|M|G|Mi|m)?\Z")
)
values = (
    st.integers(0, 1 << 42).map(str)
    | st.integers(0, 1 << 20).map(str)
    | st.sampled_from(SIZES).map(lambda size: f"{size}G")
    | st.sampled_from(["", "unknown", "64Gi", "24576Mi", "0"])
)
keys = st.sampled_from([label.key for label in MEMORY_LABELS.values()])
vendors: st.SearchStrategy[Vendor | None] = st.sampled_from(["nvidia", "amd", "intel", "apple", None])
node_labels = st.builds(
    lambda memory, system: memory | {"kubernetes.io/os": system},
    st.dictionaries(keys, values),
    st.sampled_from(["linux", "darwin"]),
)


@given(vendors, st.none() | memories, node_labels, st.sampled_from(["0", "1"]), options)
def test_a_node_fits_if_the_scheduler_would_place_a_replica_on_it(
    vendor: Vendor | None, memory: int | str | None, labels: dict[str, str], devices: str, options: GpuOptions
) -> None:
    wanted = GpuDemand.of(vendor, memory)
    if wanted is None:
        return
    resource = options.resource(vendor)
    allocatable = {resource: devices} if resource is not None else {}
    placed = admits(wanted.affinity(options), labels) and (resource is None or devices != "0")
    assert wanted.fits(labels, allocatable, options) == placed


@given(units, st.integers(1, 1024))
def test_a_label_that_states_exactly_the_amount_is_enough(unit: Unit, gibibytes: int) -> None:
    label, memory = MemoryLabel("memory", unit), Decimal(gibibytes * GIB)
    stated = {"1": str(gibibytes * GIB), "Mi": str(gibibytes * 1024), "G": f"{gibibytes}G"}[unit]
    assert label.has({"memory": stated}, memory)
    assert unit == "G" or not label.has({"memory": stated}, memory + 1)


@pytest.mark.parametrize(("memory", "least"), [("0.4", 1), ("500m", 1), ("2.5", 3)])
def test_fractions_of_a_byte_are_rounded_up(memory: str, least: int) -> None:
    options = GpuOptions(memory_labels={"nvidia": MemoryLabel("memory", "1")})
    assert demand(None, memory).fits({"memory": str(least)}, {}, options)
    assert not demand(None, memory).fits({"memory": str(least - 1)}, {}, options)


def test_more_memory_than_any_known_size_is_a_valid_affinity() -> None:
    (term,) = demand("amd", "2Ti").affinity(OPTIONS)[REQUIRED]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["2048G"]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("nvidia.com/gpu.memory=Mi", MemoryLabel("nvidia.com/gpu.memory", "Mi")),
        ("gpu.intel.com/memory.max=1", MemoryLabel("gpu.intel.com/memory.max", "1")),
        ("amd.com/gpu.vram=G", MemoryLabel("amd.com/gpu.vram", "G")),
    ],
)
def test_a_setting_names_a_label_and_its_unit(text: str, label: MemoryLabel) -> None:
    assert MemoryLabel.parse(text) == label


@pytest.mark.parametrize("text", ["", "nvidia.com/gpu.memory", "=Mi", "key=", "key=Gi", "key=Mi=1"])
def test_an_invalid_setting_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not LABEL=UNIT with a unit of 1, Mi or G"):
        MemoryLabel.parse(text)
