"""`vmaf-tune ladder`: the sizes and qualities to stream a source in."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vmafx.api.scoring import DEFAULT_MODEL
from vmafx.api.units import quantity
from vmafx.cli.tune_cluster import ClusterFlags
from vmafx.cli.tune_flags import (
    RESULTS,
    Deliverable,
    Destinations,
    JsonFlag,
    JunitFlag,
    ModelFlag,
    ParallelFlag,
    Place,
    PoolingFlag,
    PushgatewayFlag,
    QuietFlag,
    SourceArgument,
    WorkFlag,
    check_score,
    end_on_sigterm,
    parse_numbers,
    run_tuning,
    workshop,
)
from vmafx.cli.tune_progress import TuneDisplay
from vmafx.scoring.errors import BadInput
from vmafx.scoring.request import ScoreOptions, check_options
from vmafx.tune.compare import TuneSettings
from vmafx.tune.encoders import Variant
from vmafx.tune.encoding import EncoderTools
from vmafx.tune.ladder import SHOT_DROP, Ladder, LadderSettings
from vmafx.tune.outputs import Figures, as_json, ladder_csv, ladder_verdicts
from vmafx.tune.results import LadderResult, options_text
from vmafx.tune.work_folder import WorkFolder

LADDER = "Ladder"
ENDINGS = (".html", ".json", ".csv", ".m3u8")


def ladder(
    source: SourceArgument,
    encoder: Annotated[
        str,
        typer.Option(
            metavar="ENCODER[:PRESET]",
            help="Encoder of the ladder; options are added as :NAME=VALUE.",
            rich_help_panel=LADDER,
        ),
    ] = "libx264",
    heights: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Heights to try, separated by commas (default: that of the source, and the usual ones below it).",
            rich_help_panel=LADDER,
        ),
    ] = "",
    quality: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Qualities to try in each size, separated by commas (default: four of the encoder).",
            rich_help_panel=LADDER,
        ),
    ] = "",
    top: Annotated[
        float, typer.Option(metavar="SCORE", help="Score of the best rung.", rich_help_panel=LADDER)
    ] = 95.0,
    spacing: Annotated[
        float, typer.Option(metavar="POINTS", help="Points of VMAF between rungs.", rich_help_panel=LADDER)
    ] = 6.0,
    lowest: Annotated[
        float, typer.Option(metavar="SCORE", help="No rung aims below this score.", rich_help_panel=LADDER)
    ] = 40.0,
    rungs: Annotated[
        int, typer.Option(min=1, max=20, metavar="N", help="Maximum number of rungs.", rich_help_panel=LADDER)
    ] = 8,
    max_rate: Annotated[
        str,
        typer.Option(metavar="BITS", help="Maximum bitrate of a rung, such as 8M or 4500k.", rich_help_panel=LADDER),
    ] = "",
    min_rate: Annotated[
        str, typer.Option(metavar="BITS", help="Minimum bitrate of a rung.", rich_help_panel=LADDER)
    ] = "",
    key_frames: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time between key frames.", rich_help_panel=LADDER)
    ] = 2.0,
    shots: Annotated[
        bool,
        typer.Option(
            "--shots",
            help="Find the cuts of the source, and in each rung a quality for each shot, so that the rung has its "
            "score with fewer bits.",
            rich_help_panel=LADDER,
        ),
    ] = False,
    shot_drop: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            help="How much less than its rung a shot may score; 0: all shots score the same (default: 6).",
            rich_help_panel=LADDER,
        ),
    ] = None,
    model: ModelFlag = DEFAULT_MODEL,
    pooling: PoolingFlag = "mean",
    json: JsonFlag = False,
    report: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Write a report (.html, .json, .csv), or an HLS master playlist (.m3u8); may be repeated.",
            rich_help_panel=RESULTS,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Copy the rungs to this folder.", rich_help_panel=RESULTS),
    ] = None,
    fail_under: Annotated[
        float | None,
        typer.Option(metavar="SCORE", help="Exit with 1 if the best rung is below this.", rich_help_panel=RESULTS),
    ] = None,
    junit: JunitFlag = None,
    pushgateway: PushgatewayFlag = "",
    work: WorkFlag = None,
    parallel: ParallelFlag = 0,
    quiet: QuietFlag = False,
    *,
    cluster: ClusterFlags,
) -> None:  # fmt: skip
    """Find the sizes and qualities to stream a source in.

    The source is encoded in several sizes and qualities. The rungs are those that give the best score for their rate.

    Exit codes: 0 done, 1 below --fail-under, 2 bad input, 3 an encoder or this machine failed.
    """
    destinations = Destinations(report or [], junit, output, pushgateway, fail_under, json=json)

    def work_on() -> int:
        cluster.check(source)
        destinations.check(ENDINGS)
        settings = LadderSettings(
            variant=Variant.parse(encoder),
            heights=_parse_heights(heights),
            qualities=parse_numbers(quality, "--quality"),
            top=check_score("--top", top) or 0.0,
            spacing=spacing,
            lowest=check_score("--lowest", lowest) or 0.0,
            rungs=rungs,
            max_rate=_parse_rate(max_rate, "--max-rate"),
            min_rate=_parse_rate(min_rate, "--min-rate"),
            key_frames=key_frames,
            shots=shots,
            shot_drop=_drop(shot_drop, shots=shots),
        )
        if not 0.5 <= spacing <= 50 or not 0.1 <= key_frames <= 60:
            raise BadInput("options", "--spacing must be 0.5 to 50 points, and --key-frames 0.1 to 60 seconds")
        working = TuneSettings(options=ScoreOptions(model=model, pooling=pooling), parallel=parallel)
        check_options(working.options, {"pooling": "--pool"})
        with TuneDisplay(quiet=quiet or json) as display:
            result = asyncio.run(_ladder(source, settings, working, Place(WorkFolder(work), cluster, display)))
        return destinations.deliver(_deliverable(result, fail_under))

    run_tuning(work_on)


async def _ladder(source: str, settings: LadderSettings, working: TuneSettings, place: Place) -> LadderResult:
    end_on_sigterm()
    tools = await EncoderTools.find()
    tools.library(settings.variant.encoder)
    async with workshop(source, tools, working, place) as shop:
        return await Ladder(shop, settings, place.display.update).run()


def _deliverable(result: LadderResult, floor: float | None) -> Deliverable:
    return Deliverable(
        source=result.source.uri,
        show=lambda: _print(result),
        as_json=lambda: as_json(result),
        render=lambda path: _renderer(path)(result),
        encodes=[
            (f"{one.height}p-{one.encode.quality:g}{'-shots' if one.shots else ''}", one.encode) for one in result.rungs
        ],
        figures=[
            Figures(result.encoder, result.preset, options_text(result.options), one.height, one.encode)
            for one in result.rungs
        ],
        verdicts=ladder_verdicts(result, floor),
    )


def _renderer(path: Path) -> Callable[[LadderResult], bytes]:
    match path.suffix.lower():
        case ".json":
            return as_json
        case ".csv":
            return ladder_csv
        case ".m3u8":
            from vmafx.tune.hls import playlist  # noqa: PLC0415 - loads FFmpeg's libraries

            return playlist
    from vmafx.tune.page import ladder_as_page  # noqa: PLC0415 - imports matplotlib, which takes time

    return ladder_as_page


def _print(result: LadderResult) -> None:
    console = Console()
    table = Table(title=Text(f"{result.source.uri}, {result.variant}"), title_justify="left")
    for head in ("size", "quality", "kbit/s", "VMAF", "min"):
        table.add_column(head, justify="right", no_wrap=True)
    for one in result.rungs:
        encode = one.encode
        kbits = f"{encode.bitrate / 1000:,.0f}" if encode.bitrate >= 10_000 else f"{encode.bitrate / 1000:.2f}"
        table.add_row(f"{one.width}x{one.height}", one.quality, kbits, f"{encode.score:.3f}", f"{encode.lowest:.2f}")
    console.print(table)
    console.print(Text(f"of {len(result.encodes)} encodes; {result.key_frames}", style="dim"), soft_wrap=True)
    for note in result.notes:
        console.print(Text(f"note: {note}", style="yellow"), soft_wrap=True)


def _drop(points: float | None, *, shots: bool) -> float:
    if points is None:
        return SHOT_DROP
    if not shots:
        raise BadInput("options", "--shot-drop is for ladders by shots: add --shots")
    if not 0 <= points <= 100:
        raise BadInput("options", f"--shot-drop must be 0 to 100 points, not {points}")
    return points


def _parse_heights(text: str) -> tuple[int, ...]:
    numbers = parse_numbers(text, "--heights")
    if not all(map(float.is_integer, numbers)):
        raise BadInput("options", f"--heights {text!r} must have whole numbers; use e.g. 1080,720,360")
    return tuple(map(int, numbers))


def _parse_rate(text: str, option: str) -> float | None:
    if not text:
        return None
    try:
        rate = float(quantity(text))
    except ValueError:
        rate = 0.0
    if rate <= 0:
        raise BadInput("options", f"{option} {text!r} is not a bitrate; use e.g. 8M, 4500k or 800000")
    return rate
