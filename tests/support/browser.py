"""Debian's Chromium, driven by Playwright, for tests of pages.

`python -m tests.support.browser` says before the tests if it is missing.
"""

import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Page, async_playwright

MISSING = "error: Chromium is missing, in which pages are tested; on Debian: apt-get install chromium fonts-dejavu-core"
FLAGS = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
)


class OpenedPage:
    """A page in the browser, with what it requested and what the browser had to say about it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.messages: list[str] = []  # of the console; violations of the content security policy are among them
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))

    async def violations(self) -> list[str]:
        """What axe-core finds inaccessible."""
        found = (await Axe().run(self.page)).response["violations"]
        nodes = ((one["id"], node) for one in found for node in one["nodes"])
        return [f"{rule}: {node['html'][:200]}: {node['failureSummary']}" for rule, node in nodes]

    async def overflow(self) -> int:
        """Pixels that the page is wider than the window."""
        width = await self.page.evaluate("document.scrollingElement.scrollWidth - document.documentElement.clientWidth")
        return int(width)


@asynccontextmanager
async def running_browser(*flags: str) -> AsyncIterator[Browser]:
    """Chromium without a window, with a fresh profile."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=[*FLAGS, *flags], chromium_sandbox=False
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def open_page(
    browser: Browser,
    url: str,
    *,
    width: int = 1200,
    theme: Literal["light", "dark"] = "light",
    scripts: bool = True,
    touch: bool = False,
) -> AsyncIterator[OpenedPage]:
    context = await browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=theme, java_script_enabled=scripts, has_touch=touch
    )
    try:
        opened = OpenedPage(await context.new_page())
        await opened.page.goto(url)
        yield opened
    finally:
        await context.close()


if __name__ == "__main__":
    sys.exit(None if shutil.which("chromium") else MISSING)
