"""The log of records against a simple model of it, through random histories of use, crashes and damage."""

import shutil
from pathlib import Path
from tempfile import mkdtemp

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from vmafx.segments import SegmentLog

CONTENTS = st.binary(max_size=80)


class LogHistory(RuleBasedStateMachine):
    """`records` has what must be in the log, `written` all that ever was; `used` is the last position given."""

    @initialize(segment_bytes=st.integers(60, 500))
    def start(self, segment_bytes: int) -> None:
        self.folder = Path(mkdtemp())
        self.segment_bytes = segment_bytes
        self.records: dict[int, bytes] = {}
        self.written: dict[int, bytes] = {}
        self.used = 0
        self.log = SegmentLog(self.folder, segment_bytes=segment_bytes)

    def teardown(self) -> None:
        self.log.close()
        shutil.rmtree(self.folder)

    @rule(contents=st.lists(CONTENTS, max_size=4), durable=st.booleans())
    def append(self, contents: list[bytes], durable: bool) -> None:
        last = self.log.append_all(contents, durable=durable)
        if contents:
            assert last - len(contents) + 1 > self.used
            added = {last - len(contents) + 1 + i: content for i, content in enumerate(contents)}
            self.records, self.written, self.used = self.records | added, self.written | added, last

    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        position = data.draw(st.integers(0, self.used + 2))
        self.log.drop_before(position)
        kept = dict(self.log.read())
        assert all(other in kept for other in self.records if other >= position)
        self.records = {other: content for other, content in self.records.items() if other in kept}

    @rule(after=st.integers(0, 5))
    def reopen(self, after: int) -> None:
        self.log.close()
        remembered = self.used + after if after > 3 else 0
        self.log = SegmentLog(self.folder, segment_bytes=self.segment_bytes, after=remembered)
        self.used = max(self.used, self.log.end)

    @rule(tail=st.binary(min_size=1, max_size=60))
    def crash_in_a_write(self, tail: bytes) -> None:
        self.log.close()
        with max(self.folder.glob("*.segment")).open("ab") as file:
            file.write(tail)
        self.reopen(0)

    @rule(data=st.data())
    def damage(self, data: st.DataObject) -> None:
        path = data.draw(st.sampled_from(sorted(self.folder.glob("*.segment"))))
        content = bytearray(path.read_bytes())
        if not content:
            return
        self.log.close()
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        self.log = SegmentLog(self.folder, segment_bytes=self.segment_bytes)
        found = dict(self.log.read())
        assert found.items() <= self.written.items()  # a second change may repair the first
        assert len(self.records.keys() - found.keys()) <= 1
        assert self.log.end >= self.used
        self.records, self.used = found, self.log.end

    @invariant()
    def everything_is_read(self) -> None:
        if hasattr(self, "log"):
            assert list(self.log.read()) == sorted(self.records.items())

    @rule(data=st.data())
    def read_on(self, data: st.DataObject) -> None:
        after = data.draw(st.integers(0, self.used + 1))
        expected = [record for record in sorted(self.records.items()) if record[0] > after]
        assert list(self.log.read(after)) == expected


TestLogHistory = LogHistory.TestCase
TestLogHistory.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
