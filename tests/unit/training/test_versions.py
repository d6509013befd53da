"""Versions of a model: their digests, their files, and what remains after damage."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from vmafx.api.training import MAX_CHECKPOINTS
from vmafx.scoring.artifact import ARTIFACT_TYPE, CONFIG_TYPE, MODEL_TYPE, decode_manifest, digest_of
from vmafx.scoring.errors import BadInput
from vmafx.scoring.learned import LearnedModel, decode_model
from vmafx.training.status import Quality
from vmafx.training.versions import ModelMetadata, VersionStore

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


def test_other_artifacts_are_refused(tmp_path: Path) -> None:
    store = VersionStore(tmp_path)
    artifact = store.read(store.add(MODEL, metadata(1)))
    assert artifact is not None
    image = artifact.manifest.replace(ARTIFACT_TYPE.encode(), b"application/vnd.example.v1")
    for content, why in (
        (image, "not a learned model"),
        (b"{}", "not an OCI artifact"),
        (b"\xff", "not an OCI artifact"),
    ):
        with pytest.raises(BadInput, match=why):
            decode_manifest(content, "it")
