"""Log lines: formats, levels, sampling."""

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


def configured(style: LogFormat, level: logs.LogLevel = "info") -> io.StringIO:
    out = io.StringIO()
    logs.configure(level, style, out)
    return out


def test_a_json_line_has_time_level_message_and_fields() -> None:
    out = configured("json")
    log.bind(controller="c").warn("late", key=("n", "a"), seconds=3)
    line = json.loads(out.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {"level": "warn", "msg": "late", "controller": "c", "key": ["n", "a"], "seconds": 3}


def test_a_console_line_ends_with_its_fields() -> None:
    out = configured("console")
    log.info("leading", lease="x/y")
    assert out.getvalue().endswith("info  leading  lease=x/y\n")


def test_messages_below_the_level_are_not_written() -> None:
    out = configured("json", "warn")
    log.info("quiet")
    log.debug("quieter")
    assert out.getvalue() == ""


def test_an_unexpected_error_is_logged_with_its_traceback() -> None:
    out = configured("json")
    try:
        _ = 1 // 0
    except ZeroDivisionError as error:
        log.error("failed", trace_of=error)
    assert "ZeroDivisionError" in json.loads(out.getvalue())["trace"]


def test_warnings_and_errors_of_libraries_are_written_in_the_same_format() -> None:
    out = configured("json")
    logging.getLogger("aiohttp").info("chatter")
    logging.getLogger("aiohttp").error("failed %s", 7)
    line = json.loads(out.getvalue())
    assert (line["level"], line["msg"], line["logger"]) == ("error", "failed 7", "aiohttp")


def log_placements(number: int, write: Callable[..., None] = log.info) -> None:
    for job in range(number):
        write("job placed", job=f"n/job-{job}")


def test_a_repeated_message_is_sampled_and_summarized_at_the_end_of_its_window() -> None:
    out = configured("json")

    def lines() -> list[dict[str, object]]:
        return [json.loads(line) for line in out.getvalue().splitlines()]

    async def load() -> None:
        log_placements(5000)
        log.info("became leader")
        assert [one["msg"] for one in lines()] == ["job placed"] * BURST + ["became leader"]
        await asyncio.sleep(WINDOW)
        summary = lines()[-1]
        assert summary.pop("time")
        assert summary == {"level": "info", "msg": "job placed", "suppressed": 5000 - BURST}
        log_placements(BURST)

    virtual.run(load())
    assert len(lines()) == 2 * BURST + 2
    logs.flush()
    assert len(lines()) == 2 * BURST + 2  # nothing was suppressed after the summary


def test_without_an_event_loop_the_next_line_or_close_writes_the_summary() -> None:
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


@pytest.mark.parametrize(("level", "write"), [("info", log.warn), ("info", log.error), ("debug", log.info)])
def test_warnings_errors_and_everything_at_level_debug_are_never_suppressed(
    level: LogLevel, write: Callable[..., None]
) -> None:
    out = configured("json", level)
    log_placements(3 * BURST, write)
    assert len(out.getvalue().splitlines()) == 3 * BURST
