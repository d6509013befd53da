"""Results for programs: CSV, JUnit XML, and metrics for a Prometheus Pushgateway."""

import csv
import io
from collections.abc import Iterator, Sequence
from http.client import HTTPException
from typing import Annotated, NamedTuple
from urllib.error import URLError
from urllib.parse import urlsplit
from xml.etree import ElementTree

import msgspec
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import push_to_gateway

from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.settings import Setting, Settings
from vmafx.text import one_line, printable
from vmafx.tune.results import CompareResult, EncodeResult, LadderPoint, LadderResult, VariantResult, options_text

COLUMNS = (
    "encoder", "preset", "options", "quality", "codec", "bytes", "bitrate", "score", "p5", "lowest", "frames",
    "seconds", "fps", "bdRate", "bdScore", "error",
)  # fmt: skip
XML = '<?xml version="1.0" encoding="utf-8"?>\n'
PUSH_SECONDS = 10.0
PUSH_JOB = "vmaf-tune"
# What is pushed: fields of an encode, with the name and the help of their metrics.
METRICS = {
    "score": ("vmaf_tune_score", "VMAF of an encode."),
    "bitrate": ("vmaf_tune_bitrate", "Bits per second of an encode."),
    "seconds": ("vmaf_tune_encode_seconds", "Time that an encode took."),
}
METRIC_LABELS = ("encoder", "preset", "options", "quality", "height")


class PushSettings(Settings):
    """Where figures are pushed."""

    gateway: Annotated[str, Setting(
        "URL of a Prometheus Pushgateway that gets the figures of encodes (default: none).", flag="--pushgateway",
        variable="VMAFX_PUSHGATEWAY",
    )]  # fmt: skip


class Verdict(NamedTuple):
    """Whether an encode is good enough; `problem` says why not."""

    name: str
    seconds: float
    problem: str = ""
    failed: bool = False  # it could not be encoded or scored


LADDER_COLUMNS = (
    "rung", "width", "height", "encoder", "preset", "options", "quality", "bytes", "bitrate", "score", "p5", "lowest",
    "frames", "seconds", "fps", "error", "shot", "firstFrame",
)  # fmt: skip


def as_json(result: CompareResult | LadderResult) -> bytes:
    return msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"


def as_csv(result: CompareResult) -> bytes:
    """A row for each encode."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow(COLUMNS)
    for variant, encode in _encodes(result):
        facts = {
            **msgspec.structs.asdict(encode),
            **{name: getattr(variant, name) for name in ("encoder", "preset", "codec", "bdRate", "bdScore")},
            "options": options_text(variant.options),
        }
        writer.writerow(_cell(facts[name]) for name in COLUMNS)
    return output.getvalue().encode()


def ladder_csv(result: LadderResult) -> bytes:
    """A row for each encode, and of rungs by shots for each shot; `rung` counts from the best one.

    It is empty for encodes that are no rung, and `shot` for encodes of the whole source.
    """
    output = io.StringIO()
    writer = csv.DictWriter(output, LADDER_COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for point in (*result.encodes, *(rung for rung in result.rungs if rung.shots)):
        common = {
            "rung": result.rungs.index(point) + 1 if point in result.rungs else "",
            "width": point.width,
            "height": point.height,
            "encoder": result.encoder,
            "preset": result.preset,
            "options": options_text(result.options),
        }
        for row in (msgspec.structs.asdict(point.encode), *_shot_rows(result, point)):
            writer.writerow({name: _cell(value) for name, value in {**row, **common}.items()})
    return output.getvalue().encode()


def _shot_rows(result: LadderResult, point: LadderPoint) -> Iterator[dict[str, object]]:
    for number, (shot, encode) in enumerate(zip(result.shots, point.shots, strict=False), 1):
        yield {
            **msgspec.structs.asdict(encode), "shot": number, "firstFrame": shot.first, "frames": shot.frames,
        }  # fmt: skip


def _cell(value: object) -> object:
    """An error may contain line breaks and control characters, which not every reader of CSV takes."""
    if value is None:
        return ""
    return printable(value) if isinstance(value, str) else value


def ladder_verdicts(result: LadderResult, floor: float | None) -> list[Verdict]:
    """One for each encode that failed, and for each rung, of which the best must reach the floor."""
    judged = [
        Verdict(f"{one.height}p {one.encode.quality:g}", one.encode.seconds, one.encode.error, failed=True)
        for one in result.encodes
        if one.encode.error
    ]
    if not result.rungs:
        return [*judged, Verdict("ladder", 0.0, "there is no rung: no encode is within the limits")]
    for number, rung in enumerate(result.rungs):
        score, name = rung.encode.score or 0.0, f"{rung.height}p {rung.encode.quality:g}"
        problem = _below(score, floor) if number == 0 and floor is not None and score < floor else ""
        judged.append(Verdict(name, rung.encode.seconds, problem))
    return judged


def verdicts(result: CompareResult, floor: float | None) -> list[Verdict]:
    """One for each encode; in a search for a target, one for each variant, about the encode that it has found."""
    found = []
    for variant in result.variants:
        target = variant.target
        for encode in variant.encodes:
            if target is not None and encode.quality != target.quality and not encode.error:
                continue
            name = f"{variant.name} {encode.quality:g}"
            if encode.error:
                found.append(Verdict(name, encode.seconds, encode.error, failed=True))
            elif target is not None and not target.reached:
                found.append(Verdict(name, encode.seconds, target.note))
            elif floor is not None and (score := encode.score or 0.0) < floor:
                found.append(Verdict(name, encode.seconds, _below(score, floor)))
            else:
                found.append(Verdict(name, encode.seconds))
    return found


def _below(score: float, floor: float) -> str:
    """With as many digits as show that it is below."""
    short = f"{score:.3f}"
    return f"VMAF {short if float(short) < floor else score} is below {floor:.10g}"


def as_junit(source: str, judged: Sequence[Verdict]) -> bytes:
    """A test suite for a source, with a test case for each verdict."""
    suite = ElementTree.Element(
        "testsuite",
        name=printable(f"vmaf-tune {source}"),
        tests=str(len(judged)),
        failures=str(sum(bool(one.problem) and not one.failed for one in judged)),
        errors=str(sum(one.failed for one in judged)),
        time=f"{sum(one.seconds for one in judged):.3f}",
    )
    for one in judged:
        case = ElementTree.SubElement(
            suite, "testcase", classname="vmaf-tune", name=printable(one.name), time=f"{one.seconds:.3f}"
        )
        if one.problem:
            ElementTree.SubElement(case, "error" if one.failed else "failure", message=printable(one.problem))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    return f"{XML}{ElementTree.tostring(root, encoding='unicode')}\n".encode()


class Figures(NamedTuple):
    """What is pushed about an encode."""

    encoder: str
    preset: str
    options: str
    height: int
    encode: EncodeResult


def figures(result: CompareResult) -> list[Figures]:
    return [
        Figures(variant.encoder, variant.preset, options_text(variant.options), result.source.height, encode)
        for variant, encode in _encodes(result)
        if not encode.error
    ]


def check_gateway(gateway: str) -> None:
    """Raises BadInput for what is no URL of a Pushgateway."""
    has_scheme = "://" in gateway
    try:
        url = urlsplit(gateway if has_scheme else f"http://{gateway}")
        host, port = url.hostname, url.port
    except ValueError as error:
        raise BadInput("options", f"--pushgateway is not a URL: {one_line(str(error))}") from error
    if url.scheme not in {"http", "https"} or not host or port == 0 or not gateway.isprintable() or " " in gateway:
        raise BadInput("options", "--pushgateway is not a URL; use e.g. http://pushgateway.example.com:9091")
    if url.username is not None:
        raise BadInput("options", "--pushgateway must not contain a user or a password")


def push(source: str, pushed: Sequence[Figures], gateway: str) -> None:
    """Push the figures of encodes; those of the same source from before are replaced. Raises ScoringError."""
    check_gateway(gateway)
    registry = CollectorRegistry()
    gauges = {field: Gauge(*metric, METRIC_LABELS, registry=registry) for field, metric in METRICS.items()}
    for one in pushed:
        for name, gauge in gauges.items():
            labels = one.encoder, one.preset, one.options, f"{one.encode.quality:g}", one.height
            gauge.labels(*labels).set(getattr(one.encode, name))
    try:
        push_to_gateway(gateway, PUSH_JOB, registry, grouping_key={"source": source}, timeout=PUSH_SECONDS)
    except (OSError, HTTPException) as error:  # URLError is an OSError
        reason = error.reason if isinstance(error, URLError) else error
        raise NodeFault(f"cannot push to the Pushgateway: {one_line(str(reason)) or type(error).__name__}") from error


def _encodes(result: CompareResult) -> Iterator[tuple[VariantResult, EncodeResult]]:
    for variant in result.variants:
        for encode in variant.encodes:
            yield variant, encode
