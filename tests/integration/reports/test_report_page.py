"""HTML reports in a real browser: zoom, the viewer of frames, accessibility, and that nothing else is loaded."""

import math
import re
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Browser, Locator, Page

from tests.support.browser import OpenedPage, open_page
from tests.support.reports import jpeg, make_report, pixels
from vmafx.reports import html
from vmafx.scoring.result import FramePair

FRAMES = 500
SCORES = [round(90 + 8 * math.sin(frame / 15), 2) for frame in range(FRAMES)]
WORST = (123, 311, 402)
for worst, low in zip(WORST, (31.25, 40.5, 44.75), strict=True):
    SCORES[worst] = low
GREYS = ((40, 200), (100, 110), (77, 77))  # of the pictures of the reference and the distorted clip
PICTURES = [
    FramePair(frame, SCORES[frame], jpeg(reference), jpeg(distorted))
    for frame, (reference, distorted) in zip(WORST, GREYS, strict=True)
]
EXTRAS = {"psnr_y": [40 + score / 100 for score in SCORES], "integer_adm2": [score / 100 for score in SCORES]}
CLIP = make_report(SCORES, distorted="/clips/encode.mp4", extras=EXTRAS, notes=("the clips were scaled",))
OTHER = make_report(
    [score - 5 for score in SCORES], distorted="/clips/small.webm", codec="vp9", bitrate=9e5, key="other"
)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The URLs of a report of one clip and of one of two."""
    folder = tmp_path_factory.mktemp("reports")
    clips = {"one": [CLIP], "two": [CLIP, OTHER]}
    for name, scored in clips.items():
        (folder / f"{name}.html").write_text(html(scored, {"key": PICTURES}), encoding="utf-8")
    return {name: (folder / f"{name}.html").as_uri() for name in clips}


@pytest.fixture
async def opened(browser: Browser, reports: dict[str, str]) -> AsyncIterator[OpenedPage]:
    """The report of one clip."""
    async with open_page(browser, reports["one"]) as opened:
        yield opened
        assert opened.messages == []


class Curve:
    """A curve of a page, by default the first, as a reader sees and uses it."""

    def __init__(self, page: Page, number: int = 0) -> None:
        self.page, self.plot = page, page.locator(".plot[data-from]").nth(number)
        self.status = page.locator("figure > [role=status]").nth(number)

    async def shown(self) -> tuple[int, float]:
        """Frame and value of the tooltip."""
        text = await self.plot.locator(".tip").inner_text()
        found = re.fullmatch(r"frame ([\d,]+) at [\d:.]+\s+VMAF\s+([\d.]+)", text)
        assert found, text
        return int(found[1].replace(",", "")), float(found[2])

    async def range(self) -> tuple[int, int] | None:
        """The first and the last frame of a zoomed curve."""
        found = await self._shown_range()
        return found and (int(found[1]), int(found[2]))

    async def extremes(self) -> tuple[float, float] | None:
        """The lowest and the highest value in the range of a zoomed curve."""
        found = await self._shown_range()
        return found and (float(found[3]), float(found[4]))

    async def _shown_range(self) -> re.Match[str] | None:
        text = await self.status.inner_text()
        found = re.fullmatch(r"frames (\d+) to (\d+), values ([\d.]+) to ([\d.]+)", text)
        assert found or not text, text
        return found

    async def spot(self, across: float) -> tuple[float, float]:
        """Window coordinates of a place in the plot area, from 0 on the left to 1 on the right."""
        await self.plot.scroll_into_view_if_needed()
        drawing = self.plot.locator("svg[data-box]:visible")
        box, area = await drawing.bounding_box(), await drawing.get_attribute("data-box")
        assert box
        assert area
        left, top, width, height = (float(part) / 100 for part in area.split())
        return box["x"] + (left + across * width) * box["width"], box["y"] + (top + height / 2) * box["height"]

    async def point_at(self, across: float) -> tuple[int, float]:
        await self.page.mouse.move(*await self.spot(across))
        return await self.shown()

    async def select(self, start: float, end: float) -> None:
        await self.page.mouse.move(*await self.spot(start))
        await self.page.mouse.down()
        await self.page.mouse.move(*await self.spot((start + end) / 2))
        await self.page.mouse.move(*await self.spot(end))
        await self.page.mouse.up()

    async def press(self, *keys: str) -> None:
        for key in keys:
            await self.page.keyboard.press(key)

    async def ticks(self) -> set[str]:
        """The labels of the frame axis that can be seen."""
        return set(await self.plot.locator(".tick").all_text_contents())

    async def values(self) -> list[tuple[float, float]]:
        """The labels of the axis of values that can be seen, from the lowest, with their window coordinates."""
        found: list[tuple[float, float]] = await self.plot.evaluate(
            """plot => {
                const plain = (text) => Number(text.textContent.replaceAll(",", ""));
                const seen = (node) => node.checkVisibility({ visibilityProperty: true });
                const isValue = (text) => getComputedStyle(text).textAnchor === "end";
                const middle = ({ y, height }) => y + height / 2;
                return [...plot.querySelectorAll("text")].filter((text) => seen(text) && isValue(text))
                    .map((text) => [plain(text), middle(text.getBoundingClientRect())]);
            }"""
        )
        return sorted(found)

    async def drawn(self) -> float:
        """How much of the height of the plot area the values of a zoomed curve take."""
        d = await self.plot.locator(".view .curve").first.get_attribute("d") or ""
        heights = [float(step.split()[1]) for step in d[1:].split("L")[1:-1]]  # without those beyond the edges
        return (max(heights) - min(heights)) / 1000

    async def marker(self) -> float | None:
        """Where the frame of the viewer is marked, from 0 to 100; None if it is not."""
        marker = self.plot.locator(".marker")
        return float((await marker.get_attribute("x1") or "").rstrip("%")) if await marker.count() else None


async def test_values_are_read_by_keyboard(opened: OpenedPage) -> None:
    curve = Curve(opened.page)
    await curve.plot.focus()
    await curve.press("Home", "ArrowRight", "ArrowRight", "ArrowLeft")
    assert await curve.shown() == (1, SCORES[1])
    await curve.press("End", "ArrowLeft")
    assert await curve.shown() == (FRAMES - 2, SCORES[FRAMES - 2])
    await curve.press("PageDown")
    frame, value = await curve.shown()
    assert FRAMES - 2 - frame == pytest.approx(FRAMES / 10, abs=1)
    assert value == SCORES[frame]


async def test_a_curve_zooms_by_keyboard(opened: OpenedPage) -> None:
    curve = Curve(opened.page)
    await curve.plot.focus()
    assert (await curve.range(), await curve.ticks()) == (None, set())
    await curve.press("Home", *["ArrowRight"] * 8, "+", "+")
    assert await curve.range() == (6, 130)  # frame 8 stays where it was
    assert await curve.shown() == (8, SCORES[8])
    assert {"20", "0:00.80", "120"} <= await curve.ticks()
    await curve.press("End")
    assert await curve.shown() == (130, SCORES[130])
    await curve.press("ArrowRight")  # moves the range along
    assert await curve.shown() == (131, SCORES[131])
    assert await curve.range() == (7, 131)
    await curve.press("Shift+ArrowRight")
    first, last = await curve.range() or (0, 0)
    assert (first, last) == (38, 162)
    await curve.press("-")
    assert (await curve.range() or (0, 0))[0] < first
    await curve.press("0")
    assert (await curve.range(), await curve.ticks()) == (None, set())
    await curve.press("+", "Escape")
    assert await curve.range() is None
    assert await curve.plot.locator(".tip").count() == 1
    await curve.press("Escape")
    assert await curve.plot.locator(".tip").count() == 0


async def test_a_curve_is_never_smaller_than_a_few_frames_or_larger_than_the_clip(opened: OpenedPage) -> None:
    curve = Curve(opened.page)
    await curve.plot.focus()
    await curve.press("End", *["+"] * 20)
    assert await curve.range() == (FRAMES - 5, FRAMES - 1)
    await curve.press(*["Shift+ArrowRight"] * 3, *["Shift+ArrowLeft"] * 2)
    assert await curve.range() == (FRAMES - 7, FRAMES - 3)
    await curve.press(*["-"] * 20)
    assert await curve.range() is None


async def test_dragging_over_a_range_zooms_into_it(opened: OpenedPage) -> None:
    curve = Curve(opened.page)
    before = await curve.point_at(0.5)
    assert before == (250, SCORES[250]) or before == (249, SCORES[249])
    await curve.select(0.4, 0.2)
    first, last = await curve.range() or (0, 0)
    assert (first, last) == pytest.approx((100, 199), abs=2)
    frame, value = await curve.point_at(0.5)
    assert frame == pytest.approx(150, abs=2)
    assert value == SCORES[frame]
    frame, value = await curve.point_at((123 - first) / (last - first))
    assert (frame, value) == (123, 31.25)  # the dip, which has a dot here too
    assert await curve.plot.locator(".point.c7").count() == 1
    await opened.page.mouse.dblclick(*await curve.spot(0.5))
    assert await curve.range() is None


async def test_a_click_zooms_into_nothing(opened: OpenedPage) -> None:
    curve = Curve(opened.page)
    await opened.page.mouse.click(*await curve.spot(0.5))
    await curve.select(0.5, 0.501)
    assert await curve.range() is None


async def test_the_wheel_zooms_with_ctrl_only(opened: OpenedPage) -> None:
    curve = Curve(opened.page)
    under = await curve.point_at(125 / (FRAMES - 1))
    await opened.page.keyboard.down("Control")
    await opened.page.mouse.wheel(0, -100)
    await opened.page.wait_for_function("document.querySelector('figure > [role=status]').textContent")
    await opened.page.keyboard.up("Control")
    first, last = await curve.range() or (0, 0)
    assert 0 < first < under[0] < last < FRAMES - 1
    assert await curve.shown() == under
    assert await opened.page.evaluate("visualViewport.scale") == 1
    scrolled = await opened.page.evaluate("scrollY")
    await opened.page.mouse.wheel(0, 100)  # scrolls the page
    await opened.page.wait_for_function("before => scrollY > before", arg=scrolled)
    assert await curve.range() == (first, last)


async def test_two_fingers_zoom(browser: Browser, reports: dict[str, str]) -> None:
    async with open_page(browser, reports["one"], width=390, touch=True) as opened:
        curve = Curve(opened.page)
        y = (await curve.spot(0.5))[1]
        places = {across: (await curve.spot(across))[0] for across in (0.25, 0.4, 0.6, 0.75)}
        session = await opened.page.context.new_cdp_session(opened.page)

        async def touch(kind: str, *across: float) -> None:
            points = [{"x": places[place], "y": y, "id": number} for number, place in enumerate(across)]
            await session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        await touch("touchStart", 0.4)
        await touch("touchStart", 0.4, 0.6)
        await touch("touchMove", 0.25, 0.75)
        await touch("touchEnd")
        await opened.page.wait_for_function("document.querySelector('figure > [role=status]').textContent")
        assert await curve.range() == pytest.approx((150, 349), abs=4)
        assert opened.messages == []


async def test_the_buttons_zoom(opened: OpenedPage) -> None:
    curve, page = Curve(opened.page), opened.page
    closer, farther, reset = (
        page.get_by_role("button", name=f"{name}, VMAF per frame") for name in ("Zoom in", "Zoom out", "Reset zoom")
    )
    assert [await one.get_attribute("aria-disabled") for one in (farther, reset)] == ["true", "true"]
    await closer.click()
    assert await curve.range() == (125, 374)
    await closer.press("Enter")
    assert await curve.range() == (188, 311)
    await farther.click()
    assert await curve.range() == (125, 374)
    await reset.press("Space")
    assert await curve.range() is None
    assert await reset.evaluate("node => node === document.activeElement")


async def test_a_zoomed_curve_is_drawn_from_the_values_of_its_frames(opened: OpenedPage) -> None:
    curve = Curve(opened.page)
    await curve.select(0.2, 0.4)
    drawn = await curve.plot.evaluate(
        """plot => {
            const box = plot.querySelector(".view").getBoundingClientRect();
            const path = plot.querySelector(".view .curve");
            const seen = (node) => node.checkVisibility({ visibilityProperty: true });
            return {
                d: path.getAttribute("d"), stroke: getComputedStyle(path).stroke, box: [box.left, box.width],
                seen: [...plot.querySelectorAll("svg[data-box] *")].filter(seen).length,
            };
        }"""
    )
    points = [tuple(map(float, part.split())) for part in drawn["d"][1:].split("L")]
    first, last = await curve.range() or (0, 0)
    assert len(points) == pytest.approx(last - first + 1, abs=3)
    (low, _), *_, (high, _) = await curve.values()
    heights = [low + (1000 - y) / 1000 * (high - low) for _, y in points]
    (start,) = [
        place
        for place in range(FRAMES - len(points))
        if heights == pytest.approx(SCORES[place : place + len(points)], abs=0.02)
    ]
    assert start == pytest.approx(first, abs=2)
    steps = {round(after[0] - before[0], 0) for before, after in pairwise(points)}
    assert steps == {round(1000 / 99.8)}
    assert drawn["seen"] == 0
    assert drawn["stroke"] == "rgb(27, 92, 200)"
    left, right = (await curve.spot(0))[0], (await curve.spot(1))[0]
    assert drawn["box"] == pytest.approx([left, right - left], abs=1)


async def test_a_zoomed_curve_follows_the_width_of_the_window(opened: OpenedPage) -> None:
    curve = Curve(opened.page)
    await curve.select(0.2, 0.4)
    zoomed = await curve.range()
    for width in (800, 360):
        await opened.page.set_viewport_size({"width": width, "height": 900})
        left, right = (await curve.spot(0))[0], (await curve.spot(1))[0]
        await opened.page.wait_for_function(
            "([left, width]) => { const box = document.querySelector('.view').getBoundingClientRect();"
            " return Math.abs(box.left - left) < 1 && Math.abs(box.width - width) < 1; }",
            arg=[left, right - left],
        )
        assert await curve.range() == zoomed
        assert await opened.overflow() == 0


DIPS = [96.0] * FRAMES
DIPS[20], DIPS[300:303] = 31.25, [94.0] * 3
SHALLOW = make_report(
    DIPS,
    extras={
        "psnr_y": [round(40 + frame % 2 * 5, 2) for frame in range(FRAMES)],
        "ssim": [0.5] + [round(0.98 + frame % 3 / 10_000, 4) for frame in range(1, FRAMES)],
        "cambi": [0.0] * FRAMES,
        "psnr_cb": [math.inf if 40 < frame < 400 else 50.0 for frame in range(FRAMES)],
    },
)


@pytest.fixture
async def shallow(browser: Browser, tmp_path: Path) -> AsyncIterator[OpenedPage]:
    """A clip with a deep dip at frame 20, and a shallow one that cannot be seen beside it."""
    path = tmp_path / "shallow.html"
    path.write_text(html([SHALLOW]), encoding="utf-8")
    async with open_page(browser, path.as_uri()) as opened:
        yield opened
        assert opened.messages == []


async def test_the_axis_of_values_follows_the_range(shallow: OpenedPage) -> None:
    curve = Curve(shallow.page)
    whole = [label for label, _ in await curve.values()]
    assert [whole[0], whole[-1]] == [20, 100]
    await curve.select(0.5, 0.7)
    assert await curve.extremes() == (94, 96)
    assert await curve.drawn() > 0.5  # a dip by 2, in a clip whose values differ by 65
    labels = [label for label, _ in await curve.values()]
    assert labels[0] < 94
    assert 96 < labels[-1] <= 100
    assert {round(after - before, 3) for before, after in pairwise(labels)} == {0.5}
    frame, value = await curve.point_at((301 - 250) / 100)
    assert frame in {300, 301, 302}
    assert value == 94
    await shallow.page.mouse.dblclick(*await curve.spot(0.5))
    assert ([label for label, _ in await curve.values()], await curve.extremes()) == (whole, None)


async def test_values_are_where_the_axis_has_them(shallow: OpenedPage) -> None:
    curve = Curve(shallow.page)
    await curve.plot.focus()
    await curve.press("End", *["PageUp"] * 4, "+", "+")
    while (await curve.shown())[0] != 301:
        await curve.press("ArrowRight" if (await curve.shown())[0] < 301 else "ArrowLeft")
    point = await curve.plot.locator(".point").bounding_box()
    assert point
    places = dict(await curve.values())
    assert point["y"] + point["height"] / 2 == pytest.approx(places[94], abs=2)
    levels = await curve.plot.locator("text.level").all_text_contents()
    assert levels == ["p5 96.00", "mean 95.86"]  # from the top
    await curve.press("0", "Home", *["ArrowRight"] * 20, *["+"] * 6)
    assert await curve.shown() == (20, 31.25)
    (low, _), *_, (high, _) = await curve.values()
    assert low < 31.25
    assert high > 96
    await curve.press(*["Shift+ArrowRight"] * 8)
    assert await curve.extremes() == (96, 96)
    labels = [label for label, _ in await curve.values()]
    assert labels[0] < 96 < labels[-1]
    assert labels[-1] - labels[0] >= 1  # a line that is nearly flat stays so


@pytest.mark.parametrize("width", [1200, 360])
async def test_wider_labels_of_a_zoomed_curve_have_room(browser: Browser, tmp_path: Path, width: int) -> None:
    path = tmp_path / "shallow.html"
    path.write_text(html([SHALLOW]), encoding="utf-8")
    async with open_page(browser, path.as_uri(), width=width) as opened:
        for number, decimals in ((1, 0), (2, 4), (3, 2)):
            curve = Curve(opened.page, number)
            await curve.plot.focus()
            await curve.press("End", *["+"] * 3)
            labels = curve.plot.locator("text.value")
            texts = await labels.all_text_contents()
            assert 2 <= len(texts) <= 5
            assert {len(text.partition(".")[2]) for text in texts} == {decimals}
            panel, label = await curve.status.locator("..").bounding_box(), await labels.first.bounding_box()
            assert panel
            assert label
            assert label["x"] > panel["x"] + 4
        assert await opened.overflow() == 0


async def test_a_range_without_finite_values_keeps_the_axis(shallow: OpenedPage) -> None:
    curve = Curve(shallow.page, 4)
    await curve.plot.focus()
    await curve.press(*["+"] * 4)
    await curve.press(*["Shift+ArrowRight"] * 14)
    assert await curve.status.inner_text() == "frames 110 to 140"
    (low, _), *_, (high, _) = await curve.values()
    assert low < 50 < high


async def test_several_curves_zoom_together(browser: Browser, reports: dict[str, str]) -> None:
    async with open_page(browser, reports["two"]) as opened:
        curve = Curve(opened.page)
        await curve.select(0.2, 0.4)
        assert await curve.plot.locator(".view .curve").count() == 2
        await opened.page.mouse.move(*await curve.spot(0.5))
        rows = (await curve.plot.locator(".tip").inner_text()).split()
        frame = int(rows[1])
        assert rows[4:] == ["encode.mp4", f"{SCORES[frame]:.2f}", "small.webm", f"{SCORES[frame] - 5:.2f}"]
        assert opened.messages == []


class Viewer:
    """The viewer of the worst frames."""

    def __init__(self, page: Page) -> None:
        self.page, self.stage = page, page.locator(".stage").first
        self.status = page.locator(".viewer [role=status]").first

    def button(self, name: str) -> Locator:
        return self.page.locator(".viewer").first.get_by_role("button", name=name)

    async def colour(self, across: float) -> int:
        """How bright the stage is at a place from 0 on the left to 1 on the right."""
        image = pixels(await self.stage.screenshot(caret="initial"))
        pixel = image[image.shape[0] // 2, round(across * (image.shape[1] - 1))]
        assert max(pixel) - min(pixel) <= 6  # grey
        return int(pixel[1])

    async def pictures(self) -> list[int]:
        """The worst frames whose pictures of the reference and the distorted clip are shown."""
        found: list[int] = await self.page.evaluate(
            """() => {
                const pairs = [...document.querySelectorAll(".worst > figure")];
                const src = (node) => [...node.querySelectorAll("img")].map((image) => image.src).join();
                const shown = src(document.querySelector(".stage"));
                return pairs.filter((pair) => src(pair) === shown).map((pair) => Number(pair.dataset.frame));
            }"""
        )
        return found


async def test_the_viewer_steps_through_the_worst_frames_by_keyboard(opened: OpenedPage) -> None:
    viewer, curve = Viewer(opened.page), Curve(opened.page)
    assert await opened.page.locator(".worst > figure:visible").count() == 0
    await viewer.stage.focus()
    for key, frame in (
        ("Home", 123), ("ArrowRight", 311), ("ArrowRight", 402), ("ArrowRight", 402), ("ArrowLeft", 311), ("p", 123),
        ("n", 311), ("N", 402), ("P", 311), ("End", 402),
    ):  # fmt: skip
        await opened.page.keyboard.press(key)
        number = WORST.index(frame) + 1
        position = f"{SCORES[frame]:.2f} frame {frame} at 0:{frame / 25:06.3f}"
        assert await viewer.status.inner_text() == f"{position} · {number} of 3 · side by side"
        assert await viewer.pictures() == [frame]
        assert await curve.marker() == pytest.approx(100 * frame / (FRAMES - 1), abs=0.1)
        assert await viewer.button("Previous").get_attribute("aria-disabled") == str(number == 1).lower()
        assert await viewer.button("Next").get_attribute("aria-disabled") == str(number == 3).lower()
    await viewer.button("Previous").click()
    assert await viewer.pictures() == [311]
    await opened.page.keyboard.press("ArrowLeft")  # with the focus on the button
    assert await viewer.pictures() == [123]


async def test_a_zoomed_curve_moves_to_the_frame_in_the_viewer(opened: OpenedPage) -> None:
    viewer, curve = Viewer(opened.page), Curve(opened.page)
    await curve.select(0.2, 0.3)
    first, last = await curve.range() or (0, 0)
    assert first < WORST[0] < last
    await viewer.button("Next").click()
    moved = await curve.range() or (0, 0)
    assert moved[0] < WORST[1] < moved[1]
    assert await curve.marker() == pytest.approx(50, abs=2)


async def test_side_by_side_shows_both_pictures(opened: OpenedPage) -> None:
    viewer = Viewer(opened.page)
    assert [await viewer.colour(0.25), await viewer.colour(0.75)] == pytest.approx([40, 200], abs=4)


async def test_the_wipe_is_moved_by_keyboard_and_pointer(opened: OpenedPage) -> None:
    viewer, page = Viewer(opened.page), opened.page
    await viewer.button("Wipe").click()
    assert await viewer.button("Wipe").get_attribute("aria-pressed") == "true"
    assert "wipe" in await viewer.status.inner_text()
    shown = [await viewer.colour(across) for across in (0.1, 0.4, 0.6, 0.9)]
    assert shown == pytest.approx([40, 40, 200, 200], abs=4)
    slider = page.get_by_role("slider", name="Wipe position")
    await slider.focus()
    for _ in range(30):
        await page.keyboard.press("ArrowLeft")
    assert await slider.input_value() == "20"
    assert [await viewer.colour(across) for across in (0.1, 0.4)] == pytest.approx([40, 200], abs=4)
    assert await viewer.pictures() == [123]  # arrow keys move the slider, not the frame
    await page.keyboard.press("n")
    assert await viewer.pictures() == [311]
    await page.keyboard.press("p")
    box = await viewer.stage.bounding_box()
    assert box
    await page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + box["height"] / 2)
    await page.mouse.down()
    await page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + box["height"] / 2)
    await page.mouse.up()
    assert await slider.input_value() == "80"
    assert [await viewer.colour(across) for across in (0.6, 0.95)] == pytest.approx([40, 200], abs=4)


async def test_the_difference_is_multiplied_by_the_gain(opened: OpenedPage) -> None:
    viewer, page = Viewer(opened.page), opened.page
    await viewer.button("Difference").click()
    assert await viewer.colour(0.5) == 255  # 160, times four
    await viewer.stage.focus()
    await page.keyboard.press("n")
    assert await viewer.colour(0.5) == pytest.approx(4 * 10, abs=8)
    slider = page.get_by_role("slider", name="Gain")
    await slider.focus()
    for _ in range(4):
        await page.keyboard.press("ArrowRight")
    assert await slider.get_attribute("aria-valuetext") == "\N{MULTIPLICATION SIGN} 8"
    assert await viewer.colour(0.5) == pytest.approx(8 * 10, abs=16)
    await page.keyboard.press("n")
    assert await viewer.colour(0.5) <= 8  # the pictures are the same


Theme = Literal["light", "dark"]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
@pytest.mark.parametrize("name", ["one", "two"])
async def test_pages_are_accessible_and_fit(
    browser: Browser, reports: dict[str, str], name: str, width: int, theme: Theme
) -> None:
    async with open_page(browser, reports[name], width=width, theme=theme) as opened:
        page, viewer, curve = opened.page, Viewer(opened.page), Curve(opened.page)
        await page.locator("summary").first.click()
        assert await opened.overflow() == 0
        assert await opened.violations() == []
        await curve.plot.focus()
        await curve.press("+", "+")
        for mode in ("Difference", "Wipe"):
            await viewer.button(mode).click()
            assert await opened.overflow() == 0
        if name == "one":
            assert await opened.violations() == []


@pytest.mark.parametrize("name", ["one", "two"])
async def test_nothing_is_loaded_and_the_policy_is_kept(browser: Browser, reports: dict[str, str], name: str) -> None:
    async with open_page(browser, reports[name]) as opened:
        viewer, curve = Viewer(opened.page), Curve(opened.page)
        await curve.select(0.2, 0.4)
        for mode in ("Wipe", "Difference"):
            await viewer.button(mode).click()
            await viewer.button("Next").click()
        await opened.page.locator("#theme").click()
        assert [url for url in opened.requests if not url.startswith("data:")] == [reports[name]]
        assert opened.messages == []


async def test_the_policy_blocks_other_scripts_and_style_sheets(browser: Browser, tmp_path: Path) -> None:
    injected = "<script>document.title = 'injected'</script><style>body { display: none }</style><img src='/x.png'>"
    path = tmp_path / "report.html"
    path.write_text(html([CLIP]).replace("</main>", f"{injected}</main>"), encoding="utf-8")
    async with open_page(browser, path.as_uri()) as opened:
        assert await opened.page.title() != "injected"
        assert await opened.page.locator("body").is_visible()
        assert await opened.page.locator(".zoom").count() > 0  # those of the page itself are not blocked
        blocked = re.findall(r"Content Security Policy directive:? [\"']([\w-]+)", "\n".join(opened.messages))
        assert sorted(blocked) == ["img-src", "script-src", "style-src-elem"]


async def test_without_scripts_the_report_is_complete(browser: Browser, reports: dict[str, str]) -> None:
    async with open_page(browser, reports["one"], scripts=False) as opened:
        page = opened.page
        assert await page.locator(".worst > figure:visible").count() == len(WORST)
        assert await page.locator(".plot[data-from] > svg:visible").count() == 2
        assert await page.locator("button:visible").count() == 0


async def test_all_worst_frames_are_printed(opened: OpenedPage) -> None:
    await opened.page.emulate_media(media="print")
    assert await opened.page.locator(".worst > figure:visible").count() == len(WORST)
    assert await opened.page.locator(".viewer:visible, .zoom:visible").count() == 0


async def test_the_theme_can_be_switched(opened: OpenedPage) -> None:
    async def background() -> Any:
        return await opened.page.evaluate("getComputedStyle(document.body).backgroundColor")

    before = await background()
    toggle = opened.page.locator("#theme")
    assert await toggle.inner_text() == "Dark"
    await toggle.click()
    assert await toggle.inner_text() == "Light"
    assert await background() != before
