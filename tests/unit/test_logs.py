"""What the logs look like."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from vmafx import logs
from vmafx.logs import Format, log


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = handlers, level
    logs.configure("info", "console")
    root.handlers = handlers


def written(style: Format, level: logs.Level = "info") -> io.StringIO:
    out = io.StringIO()
    logs.configure(level, style, out)
    return out


def test_json_for_machines() -> None:
    out = written("json")
    log.bind(controller="c").warn("late", key=("n", "a"), seconds=3)
    said = json.loads(out.getvalue())
    assert said.pop("time").endswith("Z")
    assert said == {"level": "warn", "msg": "late", "controller": "c", "key": ["n", "a"], "seconds": 3}


def test_lines_for_people() -> None:
    out = written("console")
    log.info("leading", lease="x/y")
    assert out.getvalue().endswith("info  leading  lease=x/y\n")


def test_what_is_not_loud_enough_is_not_said() -> None:
    out = written("json", "warn")
    log.info("quiet")
    log.debug("quieter")
    assert out.getvalue() == ""


def test_an_error_nobody_foresaw_comes_with_where_it_came_from() -> None:
    out = written("json")
    try:
        _ = 1 // 0
    except ZeroDivisionError as error:
        log.error("failed", trace_of=error)
    assert "ZeroDivisionError" in json.loads(out.getvalue())["trace"]


def test_libraries_speak_the_same_way_and_only_of_trouble() -> None:
    out = written("json")
    logging.getLogger("aiohttp").info("chatter")
    logging.getLogger("aiohttp").error("trouble %s", 7)
    said = json.loads(out.getvalue())
    assert (said["level"], said["msg"], said["logger"]) == ("error", "trouble 7", "aiohttp")
