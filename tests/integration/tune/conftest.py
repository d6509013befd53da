"""Fixtures for the tests of vmaf-tune."""

from pathlib import Path

import pytest

from tests.support.tune import FaultyFfmpeg, Tune
from tests.support.video import lossless, scene


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clip of 12 frames; do not modify it."""
    return lossless(scene(frames=12), tmp_path_factory.mktemp("tune") / "source.mkv")


@pytest.fixture
def tune(tmp_path: Path) -> Tune:
    folder = tmp_path / "tune"
    folder.mkdir()
    return Tune(folder)


@pytest.fixture
def faulty(tmp_path: Path) -> FaultyFfmpeg:
    return FaultyFfmpeg(tmp_path / "faulty")
