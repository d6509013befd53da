"""Clips that are scored in a moment, made once for all who only read them."""

from pathlib import Path

import pytest

from tests.support.fleet import make_clips


@pytest.fixture(scope="session")
def clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_clips(tmp_path_factory.mktemp("clips"))
