"""Fixtures for the tests of media access."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def isolated_temp_folder(temp_folder: Path) -> None:
    """Clips are staged in a folder of the test."""
