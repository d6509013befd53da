"""The plot of a training: in each format, with what was measured."""

import io
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import pytest
from PIL import Image

from vmafx.api.training import ModelCheckpoint
from vmafx.reports.learning import check_plot_name, learning_plot
from vmafx.scoring.errors import BadInput


def versions(count: int, *, correlations: bool = True) -> list[ModelCheckpoint]:
    return [
        ModelCheckpoint(
            number=number,
            digest=f"sha256:{number}",
            time=datetime(2026, 1, 1, tzinfo=UTC),
            samples=1000 * number,
            loss=30.0 / number,
            pearson=1 - 0.3 / number if correlations else None,
            spearman=1 - 0.4 / number if correlations else None,
        )
        for number in range(1, count + 1)
    ]


@pytest.mark.parametrize("count", [1, 2, 50])
def test_a_png_is_a_picture(count: int) -> None:
    with Image.open(io.BytesIO(learning_plot("a.PNG", "t", versions(count)))) as picture:
        assert (picture.format, picture.size) == ("PNG", (1920, 1440))
        assert len(picture.convert("RGB").getcolors(1 << 24) or ()) > 10


def test_an_svg_has_text_and_the_same_bytes_each_time() -> None:
    content = learning_plot("a.svg", "$house$", versions(5))
    texts = {
        element.text
        for element in ET.fromstring(content).iter()  # noqa: S314 - our own
        if element.tag.endswith("}text")
    }
    assert {"Training $house$", "Loss (mean squared error)", "Pearson", "Spearman", "5,000"} <= texts
    assert learning_plot("a.svg", "$house$", versions(5)) == content


def test_a_page_escapes_the_name_and_lists_all_versions() -> None:
    page = learning_plot("a.html", "<b>", versions(3)).decode()
    assert "<b>" not in page
    assert page.count("<figure") == 2
    assert [f">{number:,}<" in page for number in (1000, 2000, 3000)] == [True] * 3


def test_what_was_not_measured_is_not_drawn() -> None:
    assert b"Pearson</span>" not in learning_plot("a.html", "t", versions(2, correlations=False))
    assert learning_plot("a.html", "t", versions(2, correlations=False)).count(b"<figure") == 1
    for checkpoints in ([], [ModelCheckpoint(number=1, digest="d", time=datetime(2026, 1, 1, tzinfo=UTC))]):
        with pytest.raises(BadInput, match="training t has no version of its model yet"):
            learning_plot("a.png", "t", checkpoints)


@pytest.mark.parametrize("name", ["a", "a.jpg", "png", ".png.gz"])
def test_another_format_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=r"must end in \.png, \.svg or \.html"):
        check_plot_name(name)
