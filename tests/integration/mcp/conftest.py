"""Fixtures for the tests of `vmafx mcp`."""

from pathlib import Path

import pytest

from tests.support.tune import FaultyFfmpeg


@pytest.fixture
def faulty(tmp_path: Path) -> FaultyFfmpeg:
    return FaultyFfmpeg(tmp_path / "faulty")
