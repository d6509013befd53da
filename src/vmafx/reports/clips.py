"""How a score came about: the run, and what the two clips were."""

from vmafx.reports import words
from vmafx.reports.markup import Html, join, tag
from vmafx.scoring.result import ClipFacts, Result


def run_facts(result: Result) -> Html:
    frames = f"{result.frames:,}" + (f", every {_ordinal(result.subsample)}" if result.subsample > 1 else "")
    facts = {
        "Model": result.model,
        "Pooling": words.pooling(result.pooling),
        "Frames scored": frames,
        "Compared at": f"{words.size(result.width, result.height)}, {result.pixelFormat}",
        "Speed": "from the cache" if result.cached else f"{words.number(result.fps, 1)} fps",
        "Engine": f"libvmaf {result.engine.libvmaf}, ffmpeg {result.engine.ffmpeg}",
    }
    pairs = (tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items())
    return tag("dl", *pairs, class_="facts")


def clip_lines(result: Result) -> Html:
    """The two clips in short, to stand under the title."""
    named = (("distorted", result.distorted, None), ("against", result.reference, words.name(result.reference.uri)))
    return tag("p", *(tag("span", tag("b", side), tag("bdi", _short(clip, name))) for side, clip, name in named),
               class_="lines")  # fmt: skip


def clip_table(result: Result) -> Html:
    """Side by side; where the two differ in what they should share, the row says so."""
    reference, distorted = result.reference, result.distorted
    told, given = _facts(reference), _facts(distorted)
    rows = [
        _row("Clip", tag("bdi", reference.uri), tag("bdi", distorted.uri)),
        *(_row(name, told[name], given[name], differ=told[name] != given[name]) for name in told),
        _row("Container", reference.container, distorted.container),
        _row("Codec", reference.codec, distorted.codec),
        _row("SHA-256", _digest(reference), _digest(distorted)),
    ]
    heads = (tag("th", name, scope="col") for name in ("", "Reference", "Distorted"))
    table = tag("table", tag("thead", tag("tr", *heads)), tag("tbody", *rows), class_="clips")
    return tag("div", table, class_="wide", tabindex=0, role="region", aria_label="The two clips")


def _facts(clip: ClipFacts) -> dict[str, str]:
    length = f" ({words.clock(clip.frames / clip.frameRate)})" if clip.frameRate else ""
    return {
        "Size": words.size(clip.width, clip.height),
        "Pixel format": clip.pixelFormat,
        "Frame rate": words.rate(clip.frameRate),
        "Frames": f"{clip.frames:,}{length}",
    }


def _short(clip: ClipFacts, name: str | None) -> str:
    rate = f"{words.rate(clip.frameRate)} fps" if clip.frameRate else None
    return " · ".join(filter(None, (name, clip.codec, words.size(clip.width, clip.height), clip.pixelFormat, rate)))


def _row(name: str, reference: str, distorted: str, *, differ: bool = False) -> Html:
    mark = tag("span", "differs", class_="differs") if differ else None
    return tag("tr", tag("th", name, scope="row"), tag("td", reference), tag("td", join(distorted, mark)))


def _digest(clip: ClipFacts) -> Html:
    return tag("code", clip.digest.removeprefix("sha256:")[:12], title=clip.digest)


def _ordinal(count: int) -> str:
    ending = "th" if count % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{ending}"
