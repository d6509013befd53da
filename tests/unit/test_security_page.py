"""The tests that docs/security.md names exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAMED = re.findall(r"`(test_\w+\.py)(?:::(test_\w+))?`", (ROOT / "docs" / "security.md").read_text())


def test_every_test_of_the_page_exists() -> None:
    assert len(NAMED) > 20
    for file, name in NAMED:
        found = [path.read_text() for path in (ROOT / "tests").rglob(file)]
        assert found, file
        assert not name or any(f"def {name}(" in content for content in found), f"{file}::{name}"
