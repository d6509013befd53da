"""The log of records: what is acknowledged is read back, whatever happens to its files or its process."""

import random
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmafx.segments import LogFull, LogInUse, SegmentLog

CONTENTS = st.lists(st.binary(max_size=60), min_size=1, max_size=12)
SMALL = 200  # bytes of a segment: a few records


@contextmanager
def opened(folder: Path, **options: int) -> Iterator[SegmentLog]:
    log = SegmentLog(folder, **options)
    try:
        yield log
    finally:
        log.close()


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.segment"))


def fill(folder: Path, contents: list[bytes], segment_bytes: int = SMALL) -> dict[int, bytes]:
    with opened(folder, segment_bytes=segment_bytes) as log:
        return {log.append(content): content for content in contents}


def test_records_are_read_in_order_and_from_any_position(tmp_path: Path) -> None:
    contents = [bytes([i]) * i for i in range(50)]
    written = list(fill(tmp_path, contents).items())

    assert [position for position, _ in written] == list(range(1, 51))
    assert len(segments(tmp_path)) > 5
    with opened(tmp_path) as log:
        for after in (0, 1, 17, 49, 50, 99):
            assert list(log.read(after)) == written[after:]
        assert log.damaged == log.dropped == 0


def test_reading_goes_on_where_it_ended_while_records_are_added(tmp_path: Path) -> None:
    with opened(tmp_path, segment_bytes=SMALL) as log:
        after, seen = 0, []
        for number in range(100):
            log.append(b"%d" % number, durable=False)
            if number % 3 == 0:
                for position, content in log.read(after):
                    after = position
                    seen.append(content)
        assert seen == [b"%d" % number for number in range(100)]
        assert log.damaged == 0


def test_several_records_are_written_together(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        assert log.append_all([b"a", b"b", b"c"]) == 3
        assert log.append_all([]) == 3
        log.append(b"d", durable=False)
        log.sync()
        assert [content for _, content in log.read()] == [b"a", b"b", b"c", b"d"]


@given(CONTENTS, st.data())
@settings(max_examples=150, deadline=None)
def test_a_truncated_segment_loses_only_its_last_records(contents: list[bytes], data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        written = fill(folder, contents)
        victim = data.draw(st.sampled_from(segments(folder)))
        first = int(victim.name[:20])
        behind = (int(path.name[:20]) for path in segments(folder) if path > victim)
        limit = min(behind, default=len(written) + 1)
        size = data.draw(st.integers(0, victim.stat().st_size))
        with victim.open("r+b") as file:
            file.truncate(size)

        with opened(folder, segment_bytes=SMALL, after=len(written)) as log:
            found = dict(log.read())
            assert found.items() <= written.items()
            lost = sorted(written.keys() - found.keys())
            assert all(first <= position < limit for position in lost)
            assert lost == list(range(limit - len(lost), limit)), "records in the middle are lost"
            assert log.damaged == len(lost)
            assert log.append(b"new") not in found
            assert list(log.read())[-1][1] == b"new"


@given(CONTENTS, st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_byte_never_gives_wrong_content(contents: list[bytes], data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        written = fill(folder, contents)
        victim = data.draw(st.sampled_from(segments(folder)))
        content = bytearray(victim.read_bytes())
        offset = data.draw(st.integers(0, len(content) - 1))
        content[offset] ^= data.draw(st.integers(1, 255))
        victim.write_bytes(content)

        with opened(folder, segment_bytes=SMALL) as log:
            for _ in range(2):  # counted once
                found = dict(log.read())
                assert found.items() <= written.items()
                assert len(written) - len(found) == 1
                assert log.damaged <= 1
            assert log.append(b"new") > len(written) - 1
            assert dict(log.read()).items() >= found.items()


def test_damage_in_the_middle_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    written = fill(tmp_path, [b"%03d" % i for i in range(30)], segment_bytes=1 << 20)
    (path,) = segments(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"005", b"xxx").replace(b"006", b"xxx").replace(b"020", b"xxx"))

    with opened(tmp_path) as log:
        assert [position for position, _ in log.read()] == [p for p in written if p not in {6, 7, 21}]
        assert log.damaged == 3


def test_a_record_cannot_smuggle_another_one_in(tmp_path: Path) -> None:
    fill(tmp_path / "other", [b"x", b"forged"])
    forged = segments(tmp_path / "other")[0].read_bytes()
    fill(tmp_path / "log", [forged, b"next"])
    (path,) = segments(tmp_path / "log")
    content = bytearray(path.read_bytes())
    content[9] ^= 1
    path.write_bytes(content)

    with opened(tmp_path / "log") as log:
        assert list(log.read()) == [(2, b"next")]


def test_positions_are_not_used_again(tmp_path: Path) -> None:
    fill(tmp_path, [b"x"] * 10)
    with opened(tmp_path) as log:
        log.drop_before(100)
        assert list(log.read()) == []
        assert log.size == 0
    with opened(tmp_path) as log:
        assert log.end == 10
        assert log.append(b"y") == 11
    with opened(tmp_path, after=500) as log:
        assert log.append(b"z") == 501
        assert list(log.read()) == [(11, b"y"), (501, b"z")]
        assert log.damage == {12: 489}  # the caller remembers them
    with opened(tmp_path, after=501) as log:
        assert list(log.read()) == [(11, b"y"), (501, b"z")]
        assert log.damaged == 0


def test_dropping_keeps_the_records_from_the_position(tmp_path: Path) -> None:
    fill(tmp_path, [b"x" * 40] * 20)
    with opened(tmp_path) as log:
        before = log.size
        log.drop_before(15)
        positions = [position for position, _ in log.read()]
        assert positions[-6:] == list(range(15, 21))
        assert positions[0] > 10
        assert log.size < before
        assert log.dropped == 0


def test_the_oldest_segment_is_dropped_for_new_records(tmp_path: Path) -> None:
    with opened(tmp_path, max_bytes=4000, segment_bytes=1000) as log:
        for _ in range(100):
            log.append(b"x" * 100, durable=False)
            assert log.size <= 4000
        kept = [position for position, _ in log.read()]
        assert kept == list(range(101 - len(kept), 101))
        assert log.dropped == 100 - len(kept)
        assert len(kept) > 20
        with pytest.raises(ValueError, match="do not fit"):
            log.append(b"x" * 5000)


def test_records_in_use_are_not_dropped(tmp_path: Path) -> None:
    with opened(tmp_path, max_bytes=4000, segment_bytes=1000) as log:
        log.keep_from = 20

        def fill_up() -> None:
            for _ in range(100):
                log.append(b"x" * 100, durable=False)

        with pytest.raises(LogFull, match="in use"):
            fill_up()
        positions = [position for position, _ in log.read()]
        assert 10 < positions[0] <= 20
        assert positions == list(range(positions[0], log.end + 1))
        end = log.end
        log.keep_from = end
        assert log.append(b"y") == end + 1


def test_released_records_are_no_loss(tmp_path: Path) -> None:
    with opened(tmp_path, max_bytes=4000, segment_bytes=1000) as log:
        for _ in range(50):
            position = log.append(b"x" * 100, durable=False)
            log.drop_before(position - 1)
        assert log.dropped == 0


def test_one_process_uses_a_folder(tmp_path: Path) -> None:
    with opened(tmp_path), pytest.raises(LogInUse, match="another process uses"):
        SegmentLog(tmp_path)
    with opened(tmp_path):
        pass


def test_a_write_that_the_kernel_refuses_leaves_the_log_intact(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.append(b"before")
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                log.append_all([b"x" * 60_000, b"y" * 60_000])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert segments(tmp_path)[0].stat().st_size < 100
        assert log.append(b"after") == 2
    with opened(tmp_path) as log:
        assert list(log.read()) == [(1, b"before"), (2, b"after")]
        assert log.damaged == 0


FULL_DISK = """
import errno, sys
from pathlib import Path
from vmafx.segments import SegmentLog
log = SegmentLog(Path(sys.argv[1]), segment_bytes=20_000)
acknowledged = 0
try:
    while True:
        acknowledged = log.append(b"x" * 3000)
except OSError as error:
    assert error.errno == errno.ENOSPC, error
assert [position for position, _ in log.read()] == list(range(1, acknowledged + 1))
log.drop_before(acknowledged - 3)
again = log.append(b"y" * 3000)
log.close()
log = SegmentLog(Path(sys.argv[1]))
assert dict(log.read())[again] == b"y" * 3000
print("records", acknowledged, "damaged", log.damaged)
"""


def test_a_full_disk(tmp_path: Path) -> None:
    script = f'mount -t tmpfs -o size=128k none {tmp_path} && exec "$@"'
    python = [sys.executable, "-c", FULL_DISK, str(tmp_path / "log")]
    command = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", *python]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("records ")
    assert done.stdout.endswith("damaged 0\n")


def test_threads_share_a_log(tmp_path: Path) -> None:
    with opened(tmp_path, segment_bytes=SMALL) as log:

        def write() -> None:
            for _ in range(200):
                log.append(b"x", durable=False)

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        after = 0
        while any(thread.is_alive() for thread in threads) or after < log.end:
            for position, _ in log.read(after):
                assert position == after + 1
                after = position
        assert after == 800
        assert log.damaged == 0


WRITER = """
import sys
from pathlib import Path
from vmafx.segments import SegmentLog
log = SegmentLog(Path(sys.argv[1]), segment_bytes=3000)
number = log.end
while True:
    number += 1
    position = log.append(b"%d " % number * 50)
    print(position, flush=True)
"""


def test_acknowledged_records_survive_a_kill(tmp_path: Path) -> None:
    seed = random.Random(7)
    acknowledged: list[int] = []
    for _ in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            acknowledged += [int(writer.stdout.readline()) for _ in range(seed.randrange(1, 60))]
            writer.send_signal(signal.SIGKILL)
            acknowledged += [int(line) for line in writer.stdout if line.endswith("\n")]
    with opened(tmp_path) as log:
        found = dict(log.read())
        assert len(set(acknowledged)) == len(acknowledged)
        assert set(acknowledged) <= found.keys()
        assert all(content == content[: content.index(b" ") + 1] * 50 for content in found.values())
        assert log.damaged == 0
