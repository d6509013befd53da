"""The page of `vmafx serve` in a real browser, with a real server: drop, choose, watch, cancel, and go wrong."""

import base64
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.support.browser import OpenedPage, open_page, running_browser
from tests.support.serve_process import ServeProcess
from tests.support.video import ffmpeg, lossless, scene

expect.set_options(timeout=60_000)
KEY = "an-api-key-for-this-test"
FRAMES = 24


class Clips(NamedTuple):
    folder: Path
    reference: Path
    distorted: Path
    shorter: Path
    slow: Path  # to score: 20,000 frames
    bad: Path


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Clips:
    folder = tmp_path_factory.mktemp("clips")
    reference = lossless(scene(frames=FRAMES), folder / "original.mkv")
    encode = ("-c:v", "libx264", "-crf", "38", "-pix_fmt", "yuv420p")
    ffmpeg("-i", reference, *encode, folder / "encode.mp4")
    ffmpeg("-i", reference, "-frames:v", str(FRAMES - 4), *encode, folder / "shorter.mp4")
    (folder / "bad.mp4").write_bytes(b"this is no clip" * 100)
    ten = lossless(scene(frames=10, size=(640, 360)), folder / "ten.mkv")
    ffmpeg("-i", ten, "-c:v", "libx264", "-crf", "45", "-bf", "0", folder / "small.mkv")
    ffmpeg("-stream_loop", "1999", "-i", folder / "small.mkv", "-c", "copy", folder / "slow.mkv")
    paths = (folder / name for name in ("encode.mp4", "shorter.mp4", "slow.mkv", "bad.mp4"))
    return Clips(folder, reference, *paths)


@pytest.fixture(scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory, clips: Clips) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("server")
    async with ServeProcess(folder, "--parallel", "1", roots=clips.folder) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture
async def opened(browser: Browser, server: str) -> AsyncIterator[OpenedPage]:
    """The page. It keeps its content security policy, and sends requests to its own server only."""
    async with open_page(browser, server) as opened:
        yield opened
        assert opened.messages == []
        assert [url for url in opened.requests if not url.startswith((f"{server}/", "data:"))] == []


async def drop(page: Page, target: str, *files: Path) -> None:
    """Drop files on an element, as the browser delivers it."""
    contents = [{"name": file.name, "data": base64.b64encode(file.read_bytes()).decode()} for file in files]
    transfer = await page.evaluate_handle(
        """files => {
            const transfer = new DataTransfer();
            for (const { name, data } of files) {
                transfer.items.add(new File([Uint8Array.from(atob(data), (char) => char.charCodeAt(0))], name));
            }
            return transfer;
        }""",
        contents,
    )
    for kind in ("dragover", "drop"):
        await page.dispatch_event(target, kind, {"dataTransfer": transfer})


async def choose(page: Page, reference: Path, distorted: Path) -> None:
    await page.set_input_files("#reference-file", reference)
    await page.set_input_files("#distorted-file", distorted)


async def name_uris(page: Page, reference: Path, distorted: Path) -> None:
    await page.fill("#reference-uri", str(reference))
    await page.fill("#distorted-uri", str(distorted))


async def chosen(page: Page) -> list[str]:
    """The names of the files of the reference and the distorted clip."""
    names = "part => document.getElementById(`${part}-file`).files[0]?.name ?? ''"
    return [await page.evaluate(names, part) for part in ("reference", "distorted")]


async def start(page: Page) -> None:
    await page.get_by_role("button", name="Score", exact=True).click()


async def read_score(page: Page) -> float:
    """The score of the job that is shown, once there is one."""
    report = page.locator("#report")
    await expect(report).to_be_visible()
    await expect(report).to_be_focused()
    return float(await page.locator("#result").inner_text())


def first_job(page: Page) -> Locator:
    return page.locator("#jobs > li").first


async def test_two_dropped_clips_are_scored_and_their_report_opens(opened: OpenedPage, clips: Clips) -> None:
    page = opened.page
    await drop(page, "main", clips.distorted, clips.reference)
    assert await chosen(page) == ["original.mkv", "encode.mp4"]
    await expect(page.locator("#guess")).to_contain_text("Took original.mkv as the reference, by its name.")
    await page.get_by_role("button", name="Swap the clips").click()
    assert await chosen(page) == ["encode.mp4", "original.mkv"]
    await page.get_by_role("button", name="Swap the clips").click()
    await start(page)
    score = await read_score(page)
    assert 20 < score < 99
    await expect(first_job(page)).to_contain_text(f"{score:.2f}")
    for name, start_of_file in (("report", b"<!DOCTYPE html>"), ("CSV", b"frame,"), ("curve as PNG", b"\x89PNG")):
        async with page.expect_download() as download:
            await page.get_by_role("link", name=name, exact=True).click()
        assert (await (await download.value).path()).read_bytes().startswith(start_of_file)
    await page.click("#report")
    await expect(page.locator(".hero .score strong")).to_have_text(f"{score:.2f}")
    assert re.search(r"/results/[0-9a-f]{64}$", page.url)
    assert "encode.mp4" in await page.title()


async def test_a_dropped_clip_goes_where_it_was_dropped(opened: OpenedPage, clips: Clips) -> None:
    page = opened.page
    await drop(page, "[data-part=distorted] .drop", clips.distorted)
    assert await chosen(page) == ["", "encode.mp4"]
    await drop(page, "footer", clips.shorter)
    assert await chosen(page) == ["shorter.mp4", "encode.mp4"]
    await drop(page, "#reference-file", clips.reference)
    assert await chosen(page) == ["original.mkv", "encode.mp4"]
    await drop(page, "main", clips.reference, clips.distorted, clips.shorter)
    await expect(page.locator("#problem")).to_be_focused()
    await expect(page.locator("#problem")).to_contain_text("These are 3 files.")


async def test_of_two_clips_with_any_names_the_larger_is_the_reference(opened: OpenedPage, clips: Clips) -> None:
    sizes = {clips.distorted.stat().st_size: "encode.mp4", clips.shorter.stat().st_size: "shorter.mp4"}
    await drop(opened.page, "main", clips.shorter, clips.distorted)
    assert await chosen(opened.page) == [sizes[max(sizes)], sizes[min(sizes)]]
    await expect(opened.page.locator("#guess")).to_contain_text("because it is larger")


async def test_chosen_clips_are_scored_with_options(opened: OpenedPage, clips: Clips, server: str) -> None:
    page = opened.page
    await choose(page, clips.reference, clips.distorted)
    await page.get_by_text("Options", exact=True).click()
    await page.select_option("#pooling", "min")
    await page.select_option("#model", "vmaf_v0.6.1neg")
    await page.fill("#subsample", "2")
    await page.fill("#size", "256 x 144")
    await page.get_by_label("PSNR", exact=True).check()
    await start(page)
    score = await read_score(page)
    key = (await page.locator("#report").get_attribute("href") or "").rpartition("/")[2]
    result: dict[str, Any] = await (await page.request.get(f"{server}/v1/results/{key}")).json()
    assert result["score"] == pytest.approx(score, abs=0.005)
    assert result["score"] == pytest.approx(result["features"]["vmaf"]["min"])
    assert (result["model"], result["frames"]) == ("vmaf_v0.6.1neg", FRAMES // 2)
    assert "psnr_y" in result["features"]


async def test_clips_that_were_scored_before_have_their_score_at_once(opened: OpenedPage, clips: Clips) -> None:
    page = opened.page
    await name_uris(page, clips.reference, clips.distorted)
    await start(page)
    score = await read_score(page)
    await start(page)
    await expect(page.locator("#job-title")).to_have_text("Scored before")
    assert await read_score(page) == score


async def test_raw_video_asks_for_its_format(opened: OpenedPage, clips: Clips, tmp_path: Path) -> None:
    page, clip = opened.page, scene(frames=8)
    clip.write(tmp_path / "raw.yuv")
    await choose(page, tmp_path / "raw.yuv", tmp_path / "raw.yuv")
    await start(page)
    await expect(page.locator("#problem")).to_contain_text("enter its width, height and pixel format")
    width, height = clip.size
    for part in ("reference", "distorted"):
        await page.fill(f"#{part}-width", str(width))
        await page.fill(f"#{part}-height", str(height))
    await page.select_option("#reference-pixels", clip.pixel_format)
    await page.select_option("#distorted-pixels", clip.pixel_format)
    await start(page)
    assert await read_score(page) > 95
    await choose(page, clips.reference, clips.distorted)
    await expect(page.locator("#reference-width")).to_be_hidden()


async def test_a_job_shows_its_progress_survives_a_reload_and_is_cancelled(opened: OpenedPage, clips: Clips) -> None:
    page = opened.page
    await name_uris(page, clips.slow, clips.slow)
    await start(page)
    stage = page.locator("#stage")
    await expect(stage).to_have_text(re.compile(r"Scoring [\d,]+ of 20,000 frames"))
    await expect(page.locator("#pace")).to_have_text(re.compile(r"\d fps, .* left"))
    await expect(page.locator("#announcement")).to_contain_text("Scoring")
    await expect(first_job(page)).to_contain_text("running")
    address = page.url
    await page.reload()
    assert page.url == address
    await expect(stage).to_have_text(re.compile(r"Scoring [\d,]+ of 20,000 frames"))
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.locator("#job-title")).to_have_text("Cancelled")
    await expect(page.locator("#job")).to_be_focused()
    await expect(first_job(page)).to_contain_text("cancelled")


async def test_jobs_wait_in_the_queue_and_the_list_follows_them(opened: OpenedPage, clips: Clips, server: str) -> None:
    """The jobs are of another client, such as curl."""
    page, ids = opened.page, []
    for seconds in (600, 601):
        body = {"reference": str(clips.slow), "distorted": str(clips.slow), "deadlineSeconds": seconds}
        response = await page.request.post(f"{server}/v1/score", data=body, headers={"Prefer": "respond-async"})
        assert response.status == 202
        ids.append((await response.json())["id"])
    await expect(page.locator(f"#jobs a[href='#job-{ids[0]}']")).to_be_visible()
    waiting = page.locator("#jobs > li", has=page.locator(f"a[href='#job-{ids[1]}']"))
    await expect(waiting).to_contain_text("queued")
    await waiting.locator("a").click()
    await expect(page.locator("#job")).to_be_focused()
    await expect(page.locator("#stage")).to_have_text("Next in the queue")
    await expect(page.locator("#pace")).to_contain_text("starts in about")
    await page.request.post(f"{server}/v1/jobs/{ids[0]}/cancel")
    await expect(page.locator("#job-title")).to_have_text("Scoring")
    await expect(waiting).to_contain_text("running")
    await page.get_by_role("button", name="Cancel").click()
    await expect(waiting).to_contain_text("cancelled")


async def test_a_job_is_followed_beyond_a_crash_of_the_server(browser: Browser, clips: Clips, tmp_path: Path) -> None:
    process = ServeProcess(tmp_path, roots=clips.folder)
    async with process, open_page(browser, f"http://127.0.0.1:{process.port}") as opened:
        page, stage = opened.page, opened.page.locator("#stage")
        await name_uris(page, clips.slow, clips.slow)
        await start(page)
        await expect(stage).to_contain_text("of 20,000 frames")
        await process.kill()
        await expect(stage).to_have_text("The connection was lost; connecting again")
        await process.start()
        await expect(stage).to_contain_text("of 20,000 frames")
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.locator("#job-title")).to_have_text("Cancelled")


async def test_an_upload_is_cancelled(opened: OpenedPage, clips: Clips) -> None:
    page = opened.page
    session = await page.context.new_cdp_session(page)
    slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 20_000}
    await choose(page, clips.reference, clips.distorted)
    await session.send("Network.enable")
    await session.send("Network.emulateNetworkConditions", slow)
    await start(page)
    await expect(page.locator("#stage")).to_have_text(re.compile("Uploading .* of .*"))
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.locator("#job")).to_be_hidden()
    await expect(page.locator("#submit")).to_be_focused()
    await expect(page.locator("#announcement")).to_have_text("The upload was cancelled.")


async def test_a_bad_clip_is_named_with_the_reason(opened: OpenedPage, clips: Clips) -> None:
    page, problem = opened.page, opened.page.locator("#problem")
    await choose(page, clips.reference, clips.bad)
    await start(page)
    await expect(problem).to_be_focused()
    await expect(problem).to_contain_text("The distorted clip cannot be used")
    await expect(problem).to_contain_text("bad.mp4")
    assert await page.get_attribute("#distorted-file", "aria-invalid") == "true"
    await expect(first_job(page)).to_contain_text("failed")
    await choose(page, clips.reference, clips.distorted)
    await start(page)
    await read_score(page)
    await expect(problem).to_be_hidden()
    await page.locator("#jobs > li[data-state=failed] a").first.click()  # the reason is still there
    await expect(problem).to_be_focused()
    await expect(problem).to_contain_text("The distorted clip cannot be used")


async def test_a_remedy_leads_to_its_option(opened: OpenedPage, clips: Clips) -> None:
    page = opened.page
    await choose(page, clips.reference, clips.shorter)
    await start(page)
    await page.locator("#problem").get_by_role("link", name="Different lengths").click()
    await expect(page.locator("#shortest")).to_be_focused()
    await page.keyboard.press("Space")
    await start(page)
    assert await read_score(page) > 20


async def test_a_missing_clip_is_asked_for(opened: OpenedPage, clips: Clips) -> None:
    page = opened.page
    await page.set_input_files("#reference-file", clips.reference)
    await start(page)
    await expect(page.locator("#problem")).to_be_focused()
    await expect(page.locator("#problem")).to_contain_text("The distorted clip is missing")


async def tab_to(page: Page, selector: str) -> None:
    """Press Tab until an element has the focus, which must be visible."""
    for _ in range(60):
        await page.keyboard.press("Tab")
        reached, outline = await page.evaluate(
            """selector => {
                const focused = document.activeElement;
                return [focused.matches(selector), getComputedStyle(focused).outlineStyle];
            }""",
            selector,
        )
        if reached:
            assert outline != "none"
            return
    raise AssertionError(f"Tab does not reach {selector}")


async def test_clips_are_scored_and_frames_viewed_by_keyboard_only(opened: OpenedPage, clips: Clips) -> None:
    page = opened.page
    async with page.expect_file_chooser() as chooser:  # it takes effect while the keys are pressed
        await tab_to(page, "#reference-file")
        await page.keyboard.press("Space")
    await (await chooser.value).set_files(clips.reference)
    await tab_to(page, "#distorted-uri")
    await page.keyboard.type(str(clips.distorted))
    await tab_to(page, "summary")
    await page.keyboard.press("Enter")
    await tab_to(page, "#damaged")
    await page.keyboard.press("Space")
    assert await page.is_checked("#damaged")
    await tab_to(page, "#submit")
    await page.keyboard.press("Enter")
    score = await read_score(page)
    await page.keyboard.press("Enter")
    await expect(page.locator(".hero .score strong")).to_have_text(f"{score:.2f}")
    await tab_to(page, ".stage")
    await expect(page.locator(".viewer [role=status]")).to_contain_text("1 of 12")
    await page.keyboard.press("ArrowRight")
    await expect(page.locator(".viewer [role=status]")).to_contain_text("2 of 12")


Theme = Literal["light", "dark"]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
async def test_the_page_is_accessible_and_fits(
    browser: Browser, server: str, clips: Clips, width: int, theme: Theme
) -> None:
    async with open_page(browser, server, width=width, theme=theme) as opened:
        page = opened.page

        async def check() -> None:
            assert await opened.overflow() == 0
            assert await opened.violations() == []

        await expect(page.locator("#model")).to_have_value("")
        await check()
        await page.get_by_text("Options", exact=True).click()
        await page.fill("#reference-uri", "https://example.com/a-name-longer-than-the-page-is-wide" * 3 + ".yuv")
        await start(page)
        await expect(page.locator("#problem")).to_be_visible()
        await check()
        await name_uris(page, clips.slow, clips.slow)
        await start(page)
        await expect(page.locator("#stage")).to_contain_text("of 20,000 frames")
        await expect(first_job(page)).to_contain_text("running")
        await check()
        await page.get_by_role("button", name="Cancel").click()
        await expect(page.locator("#job-title")).to_have_text("Cancelled")
        await name_uris(page, clips.reference, clips.distorted)
        await start(page)
        await read_score(page)
        await check()
        assert opened.messages == []


async def test_the_theme_is_switched_as_in_reports(opened: OpenedPage) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    before = await opened.page.evaluate(background)
    await opened.page.get_by_role("button", name="Dark").click()
    assert await opened.page.evaluate(background) != before
    await expect(opened.page.get_by_role("button", name="Light")).to_be_visible()


async def test_the_page_leads_to_the_description_of_the_api(opened: OpenedPage, server: str) -> None:
    link = opened.page.get_by_role("link", name="HTTP API")
    document = await opened.page.request.get(f"{server}{await link.get_attribute('href')}")
    assert "/v1/score" in (await document.json())["paths"]


async def test_nothing_moves_if_the_user_prefers_that(opened: OpenedPage) -> None:
    animation = "getComputedStyle(document.getElementById('bar')).animationName"
    assert await opened.page.evaluate(animation) == "slide"
    await opened.page.emulate_media(reduced_motion="reduce")
    assert await opened.page.evaluate(animation) == "none"


async def test_the_policy_blocks_what_is_not_of_the_page(browser: Browser, server: str) -> None:
    async with open_page(browser, server) as opened:
        await opened.page.evaluate(
            """() => {
                const add = (name, fields) => document.body.append(Object.assign(document.createElement(name), fields));
                add("script", { text: "document.title = 'injected'" });
                add("style", { textContent: "body { display: none }" });
                add("img", { src: "http://127.0.0.1:9/x.png" });
            }"""
        )
        await expect(opened.page.locator("#form")).to_be_visible()
        assert await opened.page.title() != "injected"
        blocked = re.findall(r"Content Security Policy directive:? [\"']([\w-]+)", "\n".join(opened.messages))
        assert sorted(blocked) == ["img-src", "script-src", "style-src"]


ATTACK = """async server => {
    const body = JSON.stringify({ reference: "/x", distorted: "/x" }), json = { "Content-Type": "application/json" };
    const status = (path, options) => fetch(path, options).then(({ type, status }) => type + status, () => "failed");
    return [
        await status("/v1/jobs"),
        await status("/v1/score", { method: "POST", headers: json, body }),
        await status(`${server}/v1/jobs`),
        await status(`${server}/v1/score`, { method: "POST", headers: json, body }),
        await status(`${server}/v1/score`, { method: "POST", mode: "no-cors", body }),
    ];
}"""


async def test_a_page_of_another_site_reaches_nothing_even_if_its_name_is_rebound(server: str) -> None:
    """evil.example has become an address of this machine, so that for the browser, the server is its origin."""
    evil = server.replace("127.0.0.1", "evil.example")
    # Newer browsers also ask before a page reaches a private address; the server must not rely on that.
    flags = "--host-resolver-rules=MAP evil.example 127.0.0.1", "--disable-features=LocalNetworkAccessChecks"
    async with running_browser(*flags) as browser:
        page = await browser.new_page()
        direct = await page.goto(f"{evil}/v1/jobs")
        assert direct is not None
        assert direct.status == 421
        await page.route(f"{evil}/", lambda route: route.fulfill(body="<title>evil</title>", content_type="text/html"))
        await page.goto(f"{evil}/")  # as it was before the name was rebound
        before = await (await page.request.get(f"{server}/v1/jobs")).json()
        assert await page.title() == "evil"
        replies = await page.evaluate(ATTACK, server)
        assert replies[:4] == ["basic421", "basic421", "failed", "failed"]
        assert replies[4] in {"opaque0", "failed"}
        assert await (await page.request.get(f"{server}/v1/jobs")).json() == before


async def test_hostile_names_are_text_on_the_page_and_in_the_report(opened: OpenedPage, clips: Clips) -> None:
    page, markup = opened.page, "<img src=x onerror=document.title='run'>"
    name = f"{markup}\u202egpj.mkv"
    for part, clip in (("reference", clips.reference), ("distorted", clips.distorted)):
        file = {"name": name, "mimeType": "video/x", "buffer": clip.read_bytes()}
        await page.set_input_files(f"#{part}-file", file)  # type: ignore[arg-type]
    await page.get_by_text("Options", exact=True).click()
    await page.select_option("#pooling", "p25")  # not scored before
    await start(page)
    await read_score(page)
    await expect(first_job(page)).to_contain_text(markup)
    await expect(page.locator("#job-clips")).to_contain_text(markup)
    assert await page.locator("main img").count() == 0
    assert "\u202e" not in await page.content()
    await page.click("#report")
    await expect(page.locator("h2")).to_contain_text(markup)
    assert await page.locator("h2 img").count() == 0
    assert "\u202e" not in await page.content()
    assert await page.title() != "run"


async def test_a_server_with_keys_asks_for_one(browser: Browser, clips: Clips, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(f"alice {KEY}\n")
    flags = ("--auth", "keys", "--keys", str(tmp_path / "keys"))
    process = ServeProcess(tmp_path, *flags)
    async with process, open_page(browser, f"http://127.0.0.1:{process.port}") as opened:
        page, key = opened.page, opened.page.get_by_label("API key or token")
        await expect(key).to_be_focused()
        assert await opened.violations() == []
        await page.keyboard.type("a-wrong-key-for-this-test\n")
        await expect(page.locator("#key-problem")).to_have_text("the API key is not valid")
        await key.fill(KEY)
        await page.keyboard.press("Enter")
        await expect(page.locator("#sign-in")).to_be_hidden()
        await expect(page.locator("#model option").first).to_have_text("vmaf_v0.6.1 (default)")
        await choose(page, clips.reference, clips.distorted)
        await start(page)
        score = await read_score(page)
        (cookie,) = await page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["value"]) == (True, "Lax", KEY)
        stored = await page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])")
        assert KEY not in stored + await page.content()
        assert json.loads(stored)[:3] == [{}, {}, ""]
        await page.click("#report")
        await expect(page.locator(".hero .score strong")).to_have_text(f"{score:.2f}")
        assert all("401 (Unauthorized)" in message for message in opened.messages)
        async with open_page(browser, page.url) as fresh:  # as somebody else who gets the link
            await expect(fresh.page.get_by_label("API key or token")).to_be_focused()
            await fresh.page.keyboard.type(f"{KEY}\n")
            await expect(fresh.page.locator(".hero .score strong")).to_have_text(f"{score:.2f}")
            assert fresh.page.url == page.url
