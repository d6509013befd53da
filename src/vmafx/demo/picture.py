"""The scene as a page: one file that needs nothing else, for light and dark, for eyes and for screen readers."""

from collections.abc import Sequence

from vmafx.demo.scene import HEIGHT, TITLE, WIDTH, Dot, Label, Line, Score, Shape, scene
from vmafx.reports.markup import Html, tag

STYLE = Html("""
:root {
  color-scheme: light dark;
  --page: light-dark(#f5f6f8, #0f1319); --panel: light-dark(#ffffff, #171c24);
  --text: light-dark(#161a21, #e9ecf1); --muted: light-dark(#566072, #9ea9b9); --hair: light-dark(#dfe3e9, #2a313c);
  --c0: light-dark(#1b5cc8, #6fa8ff); --c1: light-dark(#c04d05, #ff9d5c); --c2: light-dark(#0a7a5a, #3fcf9f);
  --c3: light-dark(#ad2079, #f582c8); --c4: light-dark(#6a3dc8, #b79dff); --c5: light-dark(#776200, #dec23f);
}
body {
  margin: 0 auto; max-width: 1000px; padding: 24px 16px 48px; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", Arial, sans-serif;
  font-variant-numeric: tabular-nums;
}
h1 { font-size: 1.3rem; margin: 0 0 16px; }
figure, table { margin: 0 0 20px; background: var(--panel); border: 1px solid var(--hair); border-radius: 12px; }
figure { padding: 8px; }
svg { display: block; width: 100%; height: auto; }
text { dominant-baseline: central; paint-order: stroke; stroke: var(--panel); stroke-width: 3px; }
.edge { stroke: var(--panel); stroke-width: 2; }
table { width: 100%; padding: 10px 18px; border-spacing: 0; }
th, td { text-align: left; padding: 6px 12px 6px 0; font-weight: 400; }
thead th, p { color: var(--muted); }
.number { text-align: right; }
@media print { :root { color-scheme: light; } }
""")
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def html(scores: Sequence[Score], reference: str) -> str:
    drawing = tag(
        "svg", *(_drawn(shape) for shape in scene(scores)),
        viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=_told(scores),
    )  # fmt: skip
    body = tag(
        "body",
        tag("main", tag("h1", f"VMAF of {len(scores)} encodes"), tag("figure", drawing), _table(scores)),
        tag("p", f"Scored against {reference} by vmafx."),
    )
    return f"<!DOCTYPE html>\n{tag('html', _head(), body, lang='en')}\n"


def _head() -> Html:
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{TITLE}: vmafx demo"),
        tag("link", rel="icon", href="data:,"),
        tag("style", STYLE),
    )


def _told(scores: Sequence[Score]) -> str:
    """What a screen reader says instead of the picture."""
    low, high = min(scores, key=lambda one: one.vmaf), max(scores, key=lambda one: one.vmaf)
    return (
        f"VMAF against bitrate of {len(scores)} encodes, from {low.vmaf:.1f} ({low.name}, {low.kbits:,.0f} kbit/s) "
        f"to {high.vmaf:.1f} ({high.name}, {high.kbits:,.0f} kbit/s); the table below has all"
    )


def _drawn(shape: Shape) -> Html:
    match shape:
        case Line():
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
            style = f"fill:none;stroke:var(--{shape.ink});stroke-width:{shape.width};stroke-linejoin:round"
            return tag("polyline", points=points, style=style)
        case Dot():
            title = tag("title", shape.told) if shape.told else None
            at = {"cx": f"{shape.at[0]:.1f}", "cy": f"{shape.at[1]:.1f}", "r": f"{shape.radius:g}"}
            return tag("circle", title, **at, class_="edge", style=f"fill:var(--{shape.ink})")
        case Label():
            style = f"fill:var(--{shape.ink});font-size:{shape.size:g}px;text-anchor:{shape.anchor}"
            weight = ";font-weight:650" if shape.bold else ""
            return tag("text", shape.text, x=f"{shape.at[0]:.1f}", y=f"{shape.at[1]:.1f}", style=style + weight)


def _table(scores: Sequence[Score]) -> Html:
    numbers = {"class_": "number"}
    head = tag(
        "tr", tag("th", "Encode", scope="col"), tag("th", "Codec", scope="col"),
        tag("th", "kbit/s", scope="col", **numbers), tag("th", "VMAF", scope="col", **numbers),
    )  # fmt: skip
    rows = (
        tag(
            "tr", tag("th", one.name, scope="row"), tag("td", one.codec),
            tag("td", f"{one.kbits:,.0f}", **numbers), tag("td", f"{one.vmaf:.2f}", **numbers),
        )
        for one in sorted(scores, key=lambda one: -one.vmaf)
    )  # fmt: skip
    return tag("table", tag("thead", head), tag("tbody", *rows))
