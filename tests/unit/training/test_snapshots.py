"""Snapshots: the latest intact one is loaded, whatever happened to the files."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from vmafx.training.snapshots import Snapshot, SnapshotStore


def save(folder: Path, *positions: int) -> SnapshotStore:
    store = SnapshotStore(folder)
    store.load()
    for position in positions:
        store.save(Snapshot(position, b"state %d" % position, {"samples": position * 10}))
    return store


def test_the_latest_snapshot_is_loaded_and_two_are_kept(tmp_path: Path) -> None:
    assert SnapshotStore(tmp_path).load() is None
    store = save(tmp_path, 5, 6, 9)
    assert store.oldest_position == 6
    assert len(list(tmp_path.iterdir())) == 2

    again = SnapshotStore(tmp_path)
    assert again.load() == Snapshot(9, b"state 9", {"samples": 90})
    assert (again.oldest_position, again.damaged) == (6, 0)


def test_a_damaged_snapshot_is_skipped_and_later_removed(tmp_path: Path) -> None:
    save(tmp_path, 5, 6)
    latest = max(tmp_path.iterdir())
    latest.write_bytes(latest.read_bytes()[:-1])

    store = SnapshotStore(tmp_path)
    assert store.load() == Snapshot(5, b"state 5", {"samples": 50})
    assert (store.damaged, store.oldest_position) == (1, 5)
    aside = latest.with_suffix(".damaged")
    assert aside.exists()
    store.save(Snapshot(7, b"new"))
    assert not aside.exists()
    assert store.oldest_position == 5
    assert SnapshotStore(tmp_path).load() == Snapshot(7, b"new")


@given(st.binary(max_size=300), st.data())
def test_no_damage_gives_a_wrong_state(state: bytes, data: st.DataObject) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        SnapshotStore(folder).save(Snapshot(1, state))
        (path,) = folder.iterdir()
        content = bytearray(path.read_bytes())
        if data.draw(st.booleans(), label="truncate"):
            content = content[: data.draw(st.integers(0, len(content) - 1))]
        else:
            content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)

        store = SnapshotStore(folder)
        assert store.load() is None
        assert store.damaged == 1
