"""Versions of a model: their digests, their files, and what remains after damage."""

import io
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from vmafx import logs
from vmafx.api.training import MAX_CHECKPOINTS
from vmafx.scoring.artifact import ARTIFACT_TYPE, CONFIG_TYPE, MODEL_TYPE, decode_manifest, digest_of, make_artifact
from vmafx.scoring.errors import BadInput
from vmafx.scoring.learned import LearnedModel, decode_model, encode_model
from vmafx.training.status import Quality
from vmafx.training.versions import KEEP_DAMAGED, ModelMetadata, VersionStore

MODEL = LearnedModel(
    base="vmaf_v0.6.1",
    features=("adm2", "motion2"),
    mean=(0.5, 3.0),
    deviation=(0.1, 2.0),
    hidden=((0.1, 0.2), (0.3, -0.4)),
    bias=(0.0, 0.1),
    output=(0.5, 0.5),
    offset=0.6,
)


@pytest.fixture
def log_lines() -> Iterator[io.StringIO]:
    out = io.StringIO()
    logs.configure("info", "json", out)
    yield out
    logs.configure("info", "console")


def metadata(number: int) -> ModelMetadata:
    return ModelMetadata(
        training="team/quality",
        number=number,
        base="vmaf_v0.6.1",
        parent="sha256:" + "0" * 64,
        time=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        samples=1000 * number,
        quality=Quality(1.5, 0.9, 0.8),
    )


def test_a_version_is_an_oci_artifact_with_a_deterministic_digest(tmp_path: Path) -> None:
    first = VersionStore(tmp_path / "a").add(MODEL, metadata(1))
    store = VersionStore(tmp_path / "b")
    assert store.add(MODEL, metadata(1)).digest == first.digest
    assert store.add(MODEL, metadata(2)).digest != first.digest

    artifact = store.read(first)
    assert artifact is not None
    assert digest_of(artifact.manifest) == artifact.digest == first.digest
    manifest = decode_manifest(artifact.manifest, "it")
    assert (manifest.artifactType, manifest.config.mediaType) == (ARTIFACT_TYPE, CONFIG_TYPE)
    assert [layer.mediaType for layer in manifest.layers] == [MODEL_TYPE]
    assert manifest.layers[0].digest == digest_of(artifact.model)
    assert decode_model(artifact.model, "it") == MODEL
    assert msgspec.json.decode(artifact.config, type=ModelMetadata) == metadata(1)


def test_versions_and_their_flags_survive_a_restart(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    assert (store.latest, store.next_number) == (None, 1)
    for number in (1, 2, 3):
        store.add(MODEL, metadata(number))
    store.mark_pushed(store.versions[1])

    for opened in (store, VersionStore(tmp_path)):
        assert [(info.number, info.pushed) for info in opened.versions] == [(1, False), (2, True), (3, False)]
        assert [info.number for info in opened.unpushed()] == [1, 3]
        assert opened.latest == opened.versions[-1]
        assert opened.next_number == 4
    assert VersionStore(tmp_path).versions == store.versions
    assert store.versions[2].quality == Quality(1.5, 0.9, 0.8)


def test_only_the_latest_versions_are_kept(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    for number in range(1, MAX_CHECKPOINTS + 4):
        store.mark_pushed(store.add(MODEL, metadata(number)))
    for opened in (store, VersionStore(tmp_path)):
        assert [info.number for info in opened.versions] == list(range(4, MAX_CHECKPOINTS + 4))
    assert len(list(tmp_path.iterdir())) == 2 * MAX_CHECKPOINTS


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_a_damaged_version_is_set_aside_and_its_number_not_used_again(tmp_path: Path, damage: str) -> None:
    store = VersionStore(tmp_path)
    for number in (1, 2):
        store.add(MODEL, metadata(number))
    path = max(tmp_path.glob("*.version"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes({"truncated": bytes(content[:-5]), "flipped": bytes(content), "empty": b""}[damage])

    assert store.read(store.versions[1]) is None
    for opened in (store, VersionStore(tmp_path)):
        assert [info.number for info in opened.versions] == [1]
        assert opened.next_number == 3
    assert store.damaged == 1


@pytest.mark.parametrize("config", [b'{"format": 2}', b"\xff", b'{"x": ' + b"[" * 100_000])
def test_metadata_of_another_version_of_vmafx_counts_as_damaged(tmp_path: Path, config: bytes) -> None:
    VersionStore(tmp_path).add(MODEL, metadata(1))
    artifact = make_artifact(config, encode_model(MODEL), "2026-01-02T03:04:05Z")
    name = f"{2:010d}-{artifact.digest.removeprefix('sha256:')}.version"
    (tmp_path / name).write_bytes(msgspec.msgpack.encode(artifact))
    store = VersionStore(tmp_path)
    assert [info.number for info in store.versions] == [1]
    assert (store.damaged, store.next_number) == (1, 3)


def test_few_damaged_files_are_kept(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    for number in range(1, 9):
        store.mark_pushed(store.add(MODEL, metadata(number)))
    for path in tmp_path.glob("*.version"):
        path.write_bytes(b"")
    store = VersionStore(tmp_path)
    assert (store.damaged, store.versions, store.next_number) == (8, (), 9)
    assert [int(path.name[:10]) for path in sorted(tmp_path.iterdir())] == list(range(9 - KEEP_DAMAGED, 9))
    assert VersionStore(tmp_path).next_number == 9


def test_a_version_that_was_removed_while_it_was_pushed_leaves_no_file(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    first = store.add(MODEL, metadata(1))
    for number in range(2, MAX_CHECKPOINTS + 2):
        store.add(MODEL, metadata(number))
    store.mark_pushed(first)
    assert list(tmp_path.glob("*.pushed")) == []


def test_a_mark_without_a_version_is_removed(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    store.mark_pushed(store.add(MODEL, metadata(1)))
    next(tmp_path.glob("*.version")).unlink()
    VersionStore(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("publishing", [True, False])
def test_a_version_that_is_removed_before_it_is_pushed_is_logged(
    tmp_path: Path, log_lines: io.StringIO, publishing: bool
) -> None:
    store = VersionStore(tmp_path)
    store.publishing = publishing
    store.mark_pushed(store.add(MODEL, metadata(1)))
    for number in range(2, MAX_CHECKPOINTS + 3):
        store.add(MODEL, metadata(number))
    lines = [msgspec.json.decode(line) for line in log_lines.getvalue().splitlines()]
    removed = [line["number"] for line in lines if line["msg"] == "version removed before it could be pushed"]
    assert removed == ([2] if publishing else [])


def test_other_artifacts_are_refused(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    artifact = store.read(store.add(MODEL, metadata(1)))
    assert artifact is not None
    image = artifact.manifest.replace(ARTIFACT_TYPE.encode(), b"application/vnd.example.v1")
    for content, why in (
        (image, "not a learned model"),
        (b"{}", "not an OCI artifact"),
        (b"\xff", "not an OCI artifact"),
        (b'{"x": ' + b"[" * 100_000, "not an OCI artifact"),
    ):
        with pytest.raises(BadInput, match=why):
            decode_manifest(content, "it")
