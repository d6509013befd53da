"""The trainer's log: every attempt counts once, what is acknowledged is read back, human scores find their job."""

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from tests.support.project import ROOT
from vmafx.scoring.result import MODEL_FEATURES
from vmafx.segments import LogFull
from vmafx.training import sample_log
from vmafx.training.sample_log import SampleLog, StoredHumanScore, StoredSamples
from vmafx.training.samples import HumanScore, SamplePush, SampleSource, encode_batch, make_batch

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LARGE = 1 << 30


def push(number: int, frames: int = 3) -> SamplePush:
    values = {name: [0.5] * frames for name in (*MODEL_FEATURES, "vmaf")}
    batch = make_batch("vmaf_v0.6.1", range(frames), values)
    assert batch is not None
    return SamplePush(SampleSource("team", "node-1", f"job-{number}", f"attempt-{number}"), encode_batch(batch))


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SampleLog]:
    opened = SampleLog(tmp_path, max_bytes=LARGE)
    yield opened
    opened.close()


def test_records_are_read_as_they_came(log: SampleLog) -> None:
    assert log.store(push(1), NOW)
    log.store_human_scores([HumanScore("job-1", 71.5)], NOW)
    samples, human = (entry.record for entry in log.read())
    assert isinstance(samples, StoredSamples)
    assert (samples.source, samples.batch, samples.time) == (push(1).source, push(1).batch, NOW)
    assert samples.decode().count == 3
    assert human == StoredHumanScore("job-1", 71.5, NOW)
    assert [entry.position for entry in log.read(after=1)] == [2]


def test_an_attempt_counts_once_also_after_a_restart(tmp_path: Path) -> None:
    for expected in (True, False):
        log = SampleLog(tmp_path, max_bytes=LARGE)
        assert [log.store(push(number), NOW) for number in range(20)] == [expected] * 20
        assert not log.store(push(5, frames=4), NOW)
        assert log.end == 20
        log.close()


def test_only_the_latest_attempts_are_remembered(log: SampleLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_log, "MAX_ATTEMPTS", 10)
    for number in range(25):
        log.store(push(number), NOW)
    assert [log.store(push(number), NOW) for number in reversed(range(15, 25))] == [False] * 10
    assert log.store(push(0), NOW)


def test_jobs_are_found_up_to_a_position(log: SampleLog) -> None:
    for number in range(6):
        log.store(push(number), NOW)
    again = msgspec.structs.replace(push(2), source=SampleSource("team", "node-1", "job-2", "second attempt"))
    log.store(again, NOW)
    found = {uid: log.find_job(uid, through=7) for uid in ("job-2", "job-4", "job-9")}
    assert {uid: entry.position for uid, entry in found.items() if entry is not None} == {"job-2": 7, "job-4": 5}
    assert log.find_job("job-4", through=4) is None


def test_a_batch_of_another_version_is_skipped(log: SampleLog) -> None:
    newer = msgspec.msgpack.encode({**msgspec.msgpack.decode(push(1).batch), "version": 2})
    log.store(msgspec.structs.replace(push(1), batch=newer), NOW)
    log.store(push(2), NOW)
    assert [entry.position for entry in log.read()] == [2]
    assert log.damage == {1: 1}


def test_records_that_are_not_used_are_never_dropped(tmp_path: Path) -> None:
    log = SampleLog(tmp_path, max_bytes=20_000)
    log.keep_from(0)
    stored = 0

    def fill_up() -> None:
        nonlocal stored
        while log.store(push(stored), NOW):
            stored += 1

    with pytest.raises(LogFull):
        fill_up()
    assert [entry.position for entry in log.read()] == list(range(1, stored + 1))
    assert not log.store(push(0), NOW), "known to be on disk"

    log.keep_from(stored)
    assert log.store(push(stored), NOW)
    assert log.dropped > 0
    assert list(log.read())[-1].position == stored + 1
    log.close()


def test_positions_in_a_snapshot_are_not_used_again(tmp_path: Path) -> None:
    log = SampleLog(tmp_path, max_bytes=LARGE, after=40)
    log.store(push(1), NOW)
    assert [entry.position for entry in log.read(after=40)] == [41]
    log.close()


def test_a_record_of_another_version_is_skipped_and_counted(log: SampleLog) -> None:
    log.store(push(1), NOW)
    log._log.append(b"\x81\xa4type\xa7unknown")
    log.store(push(2), NOW)
    assert [entry.position for entry in log.read()] == [entry.position for entry in log.read()] == [1, 3]
    assert sum(log.damage.values()) == 1


TRAINER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from tests.unit.training.test_sample_log import push
from vmafx.training.sample_log import SampleLog
log = SampleLog(Path(sys.argv[1]), max_bytes=1 << 30)
for number in range(10_000):
    log.store(push(number), datetime.now(UTC))
    print(number, flush=True)
"""


def test_every_acknowledged_batch_is_stored_once_whenever_the_trainer_is_killed(tmp_path: Path) -> None:
    seed, acknowledged = random.Random(11), -1
    for _ in range(5):
        command = [sys.executable, "-c", TRAINER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as child:
            assert child.stdout is not None
            target = acknowledged + seed.randrange(1, 60)
            for line in child.stdout:
                acknowledged = max(acknowledged, int(line))
                if acknowledged >= target:
                    break
            child.send_signal(signal.SIGKILL)
            acknowledged = max([acknowledged, *(int(line) for line in child.stdout if line.endswith("\n"))])
    log = SampleLog(tmp_path, max_bytes=LARGE)
    jobs = [entry.record.source.job for entry in log.read() if isinstance(entry.record, StoredSamples)]
    assert jobs[: acknowledged + 1] == [f"job-{number}" for number in range(acknowledged + 1)]
    assert len(jobs) <= acknowledged + 2
    log.close()
