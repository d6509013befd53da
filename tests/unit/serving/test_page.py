"""The files of the page at `/`: their weight, and that the form has what the API takes."""

import re
from html.parser import HTMLParser
from importlib import resources
from typing import get_args

import pytest

from vmafx.api.scoring import Feature, PixelFormat
from vmafx.scoring.request import RequestOptions
from vmafx.serving.page import FILES, page_routes

MAX_WEIGHT = 300_000  # bytes, of all files together


def content(path: str) -> str:
    return resources.files("vmafx").joinpath(FILES[path]).read_text(encoding="utf-8")


class Elements(HTMLParser):
    """The attributes of all elements, and the texts of the options of each select, by its ID."""

    def __init__(self) -> None:
        super().__init__()
        self.attributes: list[dict[str, str | None]] = []
        self.options: dict[str, list[str]] = {}
        self._select, self._in_option = "", False
        self.feed(content("/"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.attributes.append({"": tag, **attributes})
        if tag == "select":
            self._select = attributes["id"] or ""
        self._in_option = tag == "option"
        if self._in_option:
            self.options.setdefault(self._select, []).append("")

    def handle_data(self, data: str) -> None:
        if self._in_option:
            self.options[self._select][-1] += data.strip()


@pytest.fixture
def elements() -> Elements:
    return Elements()


def test_the_page_is_light() -> None:
    assert sum(len(content(path).encode()) for path in FILES) < MAX_WEIGHT


def test_only_the_page_itself_is_opened_from_other_sites() -> None:
    assert [route.path for route in page_routes() if route.linkable] == ["/"]
    assert {route.path for route in page_routes()} == FILES.keys()


def test_the_page_loads_only_files_of_its_own(elements: Elements) -> None:
    loaded = [one for one in elements.attributes if one[""] != "a"]
    targets = {one.get("src") or one.get("href") for one in loaded} - {None, "data:,"}
    assert targets <= FILES.keys()
    assert not [one for one in elements.attributes if "style" in one or any(name.startswith("on") for name in one)]


def test_the_form_offers_what_the_api_takes(elements: Elements) -> None:
    ids = {one.get("id") for one in elements.attributes}
    assert set(RequestOptions.__struct_fields__) - {"features"} <= ids
    features = [one["value"] for one in elements.attributes if one.get("name") == "feature"]
    assert features == list(get_args(Feature))
    assert elements.options["reference-pixels"] == list(get_args(PixelFormat))


def test_the_script_uses_only_elements_of_the_page(elements: Elements) -> None:
    ids = {one.get("id") for one in elements.attributes}
    used = set(re.findall(r'(?<!\.)\bget\("([\w-]+)"\)', content("/page/app.js")))
    assert len(used) > 20
    assert used <= ids
