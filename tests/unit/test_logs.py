"""What the logs look like."""

import asyncio
import io
import json
import logging
from collections.abc import Callable, Iterator

import pytest

from tests.support import virtual
from vmafx import logs
from vmafx.logs import BURST, WINDOW, LogFormat, LogLevel, Sampler, log


@pytest.fixture(autouse=True)
def restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers, root.level = handlers, level
    logs.configure("info", "console")
    root.handlers = handlers


def written(style: LogFormat, level: logs.LogLevel = "info") -> io.StringIO:
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


def placed(number: int, say: Callable[..., None] = log.info) -> None:
    for job in range(number):
        say("job placed", job=f"n/job-{job}")


def test_a_message_that_repeats_is_sampled_and_summarized_when_its_window_ends() -> None:
    out = written("json")

    def lines() -> list[dict[str, object]]:
        return [json.loads(line) for line in out.getvalue().splitlines()]

    async def load() -> None:
        placed(5000)
        log.info("became leader")
        assert [one["msg"] for one in lines()] == ["job placed"] * BURST + ["became leader"]
        await asyncio.sleep(WINDOW)
        summary = lines()[-1]
        assert summary.pop("time")
        assert summary == {"level": "info", "msg": "job placed", "suppressed": 5000 - BURST}
        placed(BURST)

    virtual.run(load())
    assert len(lines()) == 2 * BURST + 2
    logs.flush()
    assert len(lines()) == 2 * BURST + 2  # nothing was suppressed since


def test_without_an_event_loop_the_next_line_or_the_end_brings_the_summary() -> None:
    now, summaries = 100.0, list[tuple[str, int]]()
    sampler = Sampler(lambda *summary: summaries.append(summary), lambda: now)
    assert [sampler.admits("job placed") for _ in range(BURST + 2)] == [True] * BURST + [False] * 2
    now += WINDOW - 1
    assert not sampler.admits("job placed")
    assert sampler.admits("job succeeded")
    assert summaries == []
    now += 1
    assert sampler.admits("job succeeded")
    assert summaries == [("job placed", 3)]
    for _ in range(BURST):
        sampler.admits("job succeeded")
    sampler.close()
    assert summaries[1:] == [("job succeeded", 1)]


@pytest.mark.parametrize(("level", "say"), [("info", log.warn), ("info", log.error), ("debug", log.info)])
def test_warnings_and_errors_are_never_suppressed_nor_is_anything_at_debug(
    level: LogLevel, say: Callable[..., None]
) -> None:
    out = written("json", level)
    placed(3 * BURST, say)
    assert len(out.getvalue().splitlines()) == 3 * BURST
