"""Which rows a watch prints."""

from vmafx.cli.listing import Listing, ListingDiff, ListingRow
from vmafx.kube import ObjectKey


def test_a_diff_has_only_the_rows_that_changed_or_were_removed() -> None:
    def listing(**values: int) -> Listing:
        rows = [ListingRow(ObjectKey("x", name), value, (value,), value // 10) for name, value in values.items()]
        return Listing(rows, None)

    listings = iter([listing(a=10, b=20), listing(a=11, b=20, c=30), listing(a=20, c=31), listing()])
    diff = ListingDiff(lambda: next(listings), lambda row: row._replace(document="removed"))
    assert [row.document for row in diff.listing().rows] == [10, 20]
    assert [row.document for row in diff.changed([])] == [30]
    assert [row.document for row in diff.changed([])] == ["removed", 20]
    assert [row.document for row in diff.changed([])] == ["removed", "removed"]
