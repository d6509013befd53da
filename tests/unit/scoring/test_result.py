"""Progress, as written to files and as shown to people."""

import msgspec

from vmafx.scoring.result import Progress


def test_stages_are_shown_in_plain_words_and_written_unchanged() -> None:
    fetching = Progress("fetching", 5)
    assert fetching.activity == "downloading"
    assert Progress("reading").activity == "probing"
    assert Progress("scoring").activity == "scoring"
    assert msgspec.to_builtins(fetching)["stage"] == "fetching"
    assert "activity" not in msgspec.to_builtins(fetching)
