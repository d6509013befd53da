"""The HTML report of a comparison in a real browser: accessible, on narrow screens and in the dark, offline."""

from collections.abc import AsyncIterator
from typing import Literal

import pytest
from playwright.async_api import Browser

from tests.support.browser import open_page, running_browser
from vmafx.reports.encoder_comparison import DASH
from vmafx.tune.page import comparison_page, ladder_as_page
from vmafx.tune.results import (
    CompareResult,
    EncodeResult,
    LadderPoint,
    LadderResult,
    ShotEncode,
    SourceFacts,
    TargetResult,
    VariantResult,
)
from vmafx.tune.scenes import Shot

SWATCH, COLOUR = ".swatch", "line => getComputedStyle(line).stroke"
MINUS = "\N{MINUS SIGN}"
HOSTILE = "/clips/<img src=x onerror=alert(1)>.mkv"


def encode(quality: float, score: float, kbits: float) -> EncodeResult:
    return EncodeResult(
        quality=quality, bytes=int(kbits * 125), bitrate=kbits * 1000, frames=250, score=score, lowest=score - 9,
        p5=score - 5, seconds=2.5, fps=100.0, file="/w/a.mp4",
    )  # fmt: skip


def variant(name: str, scale: float, *more: EncodeResult, target: TargetResult | None = None) -> VariantResult:
    encodes = tuple(encode(20 + 6 * step, 97 - 5 * step, scale * 4000 / 2**step) for step in range(4))
    return VariantResult(
        name=name, encoder=name.partition(":")[0], preset="medium", codec="H.264", encodes=(*encodes, *more),
        bdRate=None if scale == 1 else (scale - 1) * 100, bdScore=None if scale == 1 else 3.25, target=target,
    )  # fmt: skip


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    result = CompareResult(
        source=SourceFacts(uri=HOSTILE, digest="sha256:ab", width=1920, height=1080, frames=250, frameRate=25.0),
        model="vmaf_v0.6.1",
        pooling="mean",
        parallel=2,
        variants=(
            variant("libx264", 1.0),
            VariantResult(name="libaom-av1", encoder="libaom-av1", preset="6", codec="AV1", encodes=()),
            variant("libx265:slow", 0.7, EncodeResult(quality=50, error="libx265 failed with exit code 1: <b>no</b>")),
            variant("libsvtav1", 0.5, target=TargetResult(score=92, reached=True, quality=26, note="proven")),
        ),
        notes=("the source has 4:4:4, and is encoded in 4:2:0",),
    )
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_bytes(comparison_page(result))
    return path.as_uri()


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A ladder of three rungs by two hundred shots."""
    shots = tuple(Shot(12 * number, 12 * number + 12, 0.48 * number) for number in range(200))
    found = ShotEncode(target=92.3, quality=23.5, bitrate=1_250_000.0, score=92.5, lowest=85.0, reached=True, tried=3)
    rungs = tuple(
        LadderPoint(width=height * 16 // 9, height=height, encode=encode(24, score, height * 4.0), target=score,
                    shots=(found,) * len(shots))
        for height, score in ((1080, 95.0), (720, 89.0), (360, 71.0))
    )  # fmt: skip
    result = LadderResult(
        source=SourceFacts(uri=HOSTILE, digest="sha256:ab", width=1920, height=1080, frames=2400, frameRate=25.0),
        model="vmaf_v0.6.1", pooling="mean", encoder="libx264", preset="medium", options={"tune": "film"},
        codec="H.264", keyFrames=50, rungs=rungs, encodes=rungs, shots=shots,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("ladder") / "ladder.html"
    path.write_bytes(ladder_as_page(result))
    return path.as_uri()


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
async def test_a_report_is_accessible_fits_the_screen_and_loads_nothing(
    width: int, theme: Literal["light", "dark"], browser: Browser, report: str
) -> None:
    async with open_page(browser, report, width=width, theme=theme) as opened:
        assert opened.requests == [report]
        assert await opened.violations() == []
        assert await opened.overflow() == 0
        assert opened.messages == []


@pytest.mark.parametrize("width", [360, 1200])
async def test_a_ladder_by_shots_is_accessible_fits_the_screen_and_lists_them(
    width: int, browser: Browser, ladder: str
) -> None:
    async with open_page(browser, ladder, width=width) as opened:
        assert await opened.violations() == []
        assert await opened.overflow() == 0
        assert opened.messages == []
        table = opened.page.get_by_role("region", name="All shots")
        rows = [" ".join(row.split()) for row in await table.get_by_role("row").all_inner_texts()]
        assert rows[0] == "Shot Start Frames 1080p for 95.0 720p for 89.0 360p for 71.0"
        assert rows[2] == "2 0:00.480 12 92.50, 1,250, 23.5 92.50, 1,250, 23.5 92.50, 1,250, 23.5"
        assert len(rows) == 201
        assert "libx264 medium tune=film" in await opened.page.locator("body").inner_text()


async def test_a_report_shows_the_figures_and_names_as_text(browser: Browser, report: str) -> None:
    async with open_page(browser, report) as opened:
        text = await opened.page.locator("body").inner_text()
        assert HOSTILE.partition("/clips/")[2] in text
        assert "libx265 failed with exit code 1: <b>no</b>" in text
        assert "the source has 4:4:4, and is encoded in 4:2:0" in text
        assert await opened.page.locator("img[onerror]").count() == 0
        summary = opened.page.get_by_role("region", name="All encoders")
        rows = [" ".join(row.split()) for row in await summary.get_by_role("row").all_inner_texts()]
        assert rows[1].startswith(f"libx264 4 {DASH} {DASH}")
        assert rows[2].startswith(f"libaom-av1 0 {DASH} {DASH}")
        assert rows[3].startswith(f"libx265:slow 4 {MINUS}30.0 % +3.25")
        assert rows[4].startswith("libsvtav1 4 ")
        assert "26 gives 92.00 at 1,000 kbit/s; proven" in rows[4]
        colours = [await summary.locator(SWATCH).nth(number).evaluate(COLOUR) for number in range(3)]
        encodes = opened.page.get_by_role("region", name="All encodes")
        assert await encodes.get_by_role("row").count() == 1 + 12
        assert await encodes.get_by_title("found by the search").count() == 1
        assert await encodes.locator(SWATCH).nth(4).evaluate(COLOUR) == colours[1], "the same as in the chart"
        assert await encodes.locator(SWATCH).nth(8).evaluate(COLOUR) == colours[2]
        assert len(set(colours)) == 3


async def test_a_report_without_scripts_is_complete(browser: Browser, report: str) -> None:
    async with open_page(browser, report, scripts=False) as opened:
        assert await opened.page.get_by_role("region", name="All encodes").get_by_role("row").count() == 13
        assert await opened.page.locator("svg").count() > 0
