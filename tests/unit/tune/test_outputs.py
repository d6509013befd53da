"""Results as CSV and JUnit, the verdicts on them, and failures to push."""

import csv
import io
from xml.etree import ElementTree

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmafx.scoring.errors import BadInput
from vmafx.text import printable
from vmafx.tune.outputs import Verdict, as_csv, as_json, as_junit, check_gateway, figures, verdicts
from vmafx.tune.page import comparison_page
from vmafx.tune.results import CompareResult, EncodeResult, SourceFacts, TargetResult, VariantResult

GOOD = EncodeResult(
    quality=23, bytes=1000, bitrate=8e5, frames=25, score=95.25, lowest=90, p5=91, seconds=0.5, fps=50, file="/w/a.mp4"
)
POOR = EncodeResult(quality=40, bytes=100, bitrate=8e4, frames=25, score=70.0, lowest=60, p5=61, seconds=0.25, fps=100)
FAILED = EncodeResult(quality=30, error="libx264 failed with exit code 1: Out of <memory> & \x1b[31mred\udcff")
HOSTILE = "/clips/<b>\"a\"&'b'\x07\x1b[31m\udcff\ufffe\u202egpj.mkv"
anything = st.text(st.characters(codec=None), max_size=30)


def result(*encodes: EncodeResult, uri: str = "a.mkv", target: TargetResult | None = None) -> CompareResult:
    variant = VariantResult(
        name="libx264", encoder="libx264", preset="medium", codec="H.264", encodes=encodes, target=target
    )
    source = SourceFacts(uri=uri, digest="sha256:ab", width=256, height=144, frames=25, frameRate=25)
    return CompareResult(source=source, model="vmaf_v0.6.1", pooling="mean", parallel=1, variants=(variant,))


def test_csv_has_a_row_for_each_encode() -> None:
    rows = list(csv.DictReader(io.StringIO(as_csv(result(GOOD, FAILED)).decode())))
    assert [row["quality"] for row in rows] == ["23", "30"]
    assert (rows[0]["encoder"], rows[0]["bitrate"], rows[0]["score"], rows[0]["error"]) == (
        "libx264", "800000.0", "95.25", "",
    )  # fmt: skip
    assert (rows[1]["score"], rows[1]["error"]) == ("", printable(FAILED.error))


@given(anything)
def test_csv_is_read_back(error: str) -> None:
    content = as_csv(result(EncodeResult(quality=1, error=error or "?"))).decode()
    (row,) = csv.DictReader(io.StringIO(content, newline=""))
    assert row["error"] == printable(error or "?")


def test_json_is_read_back() -> None:
    assert msgspec.json.decode(as_json(result(GOOD, POOR)), type=CompareResult) == result(GOOD, POOR)


def parsed(junit: bytes) -> ElementTree.Element:
    (suite,) = ElementTree.fromstring(junit)  # noqa: S314 - our own
    return suite


@given(anything, anything, anything)
def test_junit_is_xml_whatever_names_and_errors_contain(uri: str, name: str, problem: str) -> None:
    judged = [Verdict(name, 0.5), Verdict(name, 1.0, problem or "?"), Verdict(name, 0, problem or "?", failed=True)]
    suite = parsed(as_junit(uri, judged))
    assert suite.attrib | {"name": ""} == {"name": "", "tests": "3", "failures": "1", "errors": "1", "time": "1.500"}
    cases = list(suite)
    assert [[child.tag for child in case] for case in cases] == [[], ["failure"], ["error"]]
    assert all(case.get("name", "").isprintable() for case in cases)


def test_junit_shows_hostile_names_and_errors() -> None:
    judged = verdicts(result(GOOD, FAILED, POOR), 90.0)
    suite = parsed(as_junit(HOSTILE, judged))
    assert suite.get("name") == "vmaf-tune /clips/<b>\"a\"&'b'\\x07\\x1b[31m\\udcff\\ufffe\\u202egpj.mkv"
    error = suite.find("testcase/error")
    assert error is not None
    assert error.get("message") == "libx264 failed with exit code 1: Out of <memory> & \\x1b[31mred\\udcff"
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == "VMAF 70.000 is below 90"


def test_a_page_escapes_hostile_names_and_errors() -> None:
    page = comparison_page(result(GOOD, FAILED, uri=HOSTILE)).decode()
    assert '<b>"a"' not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "Out of &lt;memory&gt; &amp; " in page


def test_verdicts_are_about_each_encode() -> None:
    assert verdicts(result(GOOD, POOR), None) == [Verdict("libx264 23", 0.5), Verdict("libx264 40", 0.25)]
    good, failed, poor = verdicts(result(GOOD, FAILED, POOR), 95.0)
    assert (good.problem, failed.failed, poor.problem) == ("", True, "VMAF 70.000 is below 95")
    assert not poor.failed


def test_a_score_barely_below_the_floor_is_shown_with_all_its_digits() -> None:
    barely = msgspec.structs.replace(GOOD, score=89.99999)
    assert verdicts(result(barely), 90.0)[0].problem == "VMAF 89.99999 is below 90"


def test_a_search_is_judged_by_what_it_has_found() -> None:
    found = TargetResult(score=93, reached=True, quality=23)
    assert verdicts(result(POOR, GOOD, target=found), None) == [Verdict("libx264 23", 0.5)]
    assert verdicts(result(POOR, GOOD, target=found), 96)[0].problem == "VMAF 95.250 is below 96"
    missed = TargetResult(score=99, reached=False, quality=23, note="no setting of libx264 reaches 99")
    assert verdicts(result(POOR, GOOD, target=missed), None) == [
        Verdict("libx264 23", 0.5, "no setting of libx264 reaches 99")
    ]
    broken = verdicts(result(GOOD, FAILED), None)
    assert [one.failed for one in broken] == [False, True]


def test_only_encodes_with_a_score_are_pushed() -> None:
    assert [one.encode.quality for one in figures(result(GOOD, FAILED))] == [23]


@pytest.mark.parametrize(
    "gateway",
    [
        "http://[::1",
        "http://127.0.0.1:port",
        "http://a:99999",
        "gopher://a:1",
        "http://a b/",
        "http://",
        ":9091",
        "a\n",
    ],
)
def test_a_gateway_that_is_no_url_is_refused(gateway: str) -> None:
    with pytest.raises(BadInput, match=r"^options: --pushgateway is not a URL"):
        check_gateway(gateway)


@pytest.mark.parametrize("gateway", ["pushgateway:9091", "http://[::1]:9091/", "https://push.example.com/prefix"])
def test_a_gateway_is_a_url_with_or_without_its_scheme(gateway: str) -> None:
    check_gateway(gateway)


def test_credentials_in_the_url_of_a_gateway_are_refused_and_not_printed() -> None:
    with pytest.raises(BadInput) as error:
        check_gateway("http://user:secret@push.example.com")
    assert "secret" not in str(error.value)
