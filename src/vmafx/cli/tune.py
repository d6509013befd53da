"""`vmaf-tune`: compares encoders on a source, and finds the settings that reach a quality."""

import asyncio
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from vmafx.api.scoring import DEFAULT_MODEL
from vmafx.cli.options import HELP, VersionFlag
from vmafx.cli.tune_cluster import ClusterFlags, with_cluster_flags
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
from vmafx.cli.tune_ladder import ladder
from vmafx.cli.tune_progress import TuneDisplay
from vmafx.scoring.errors import BadInput
from vmafx.scoring.request import ScoreOptions, check_options
from vmafx.tune.compare import TuneSettings, compare_result
from vmafx.tune.compare import compare as compare_encoders
from vmafx.tune.config import TuneConfig, VariantConfig
from vmafx.tune.encoding import EncoderTools
from vmafx.tune.outputs import as_csv, as_json, figures, verdicts
from vmafx.tune.results import CompareResult
from vmafx.tune.search import Goal
from vmafx.tune.target import TargetSearch
from vmafx.tune.work_folder import WorkFolder

EXIT_INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
WHAT = "What to try"
RENDERED = (".html", ".json", ".csv")

app = typer.Typer(name="vmaf-tune", no_args_is_help=True, pretty_exceptions_enable=False, context_settings=HELP)


@app.callback()
def options(_version: VersionFlag = False) -> None:
    """Compare encoders by rate and quality (VMAF), and find the settings that reach a quality."""


@app.command(context_settings=HELP)
@with_cluster_flags
def compare(
    source: SourceArgument,
    encoders: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIST",
            help="Encoders to compare, separated by commas: ENCODER or ENCODER:PRESET, with options as :NAME=VALUE, "
            "such as libx264:slow,libx264:slow:tune=film (default: x264, x265, VP9, libaom and SVT-AV1, as far as this "
            "machine has them). The first one is what the others are compared with.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    quality: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="Qualities to encode at, such as CRF, separated by commas (default: four for each encoder).",
            rich_help_panel=WHAT,
        ),
    ] = "",
    target_vmaf: Annotated[
        float | None,
        typer.Option(
            metavar="SCORE",
            help="Find the setting of each encoder whose score is this, or just above, instead of trying qualities.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            help="How much a score may be above --target-vmaf (default: 0.5).",
            rich_help_panel=WHAT,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Read what to try from a YAML file; flags win.", rich_help_panel=WHAT),
    ] = None,
    model: ModelFlag = DEFAULT_MODEL,
    pooling: PoolingFlag = "mean",
    json: JsonFlag = False,
    report: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="Write a report (.html, .json or .csv); may be repeated.", rich_help_panel=RESULTS
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Copy the encodes to this folder.", rich_help_panel=RESULTS),
    ] = None,
    fail_under: Annotated[
        float | None,
        typer.Option(metavar="SCORE", help="Exit with 1 if an encode scores below this.", rich_help_panel=RESULTS),
    ] = None,
    junit: JunitFlag = None,
    pushgateway: PushgatewayFlag = "",
    work: WorkFlag = None,
    parallel: ParallelFlag = 0,
    quiet: QuietFlag = False,
    *,
    cluster: ClusterFlags,
) -> None:  # fmt: skip
    """Encode a source with several encoders, score each encode, and compare rate and quality.

    What was encoded and scored before is not done again, so that an interrupted comparison continues.

    Exit codes: 0 done, 1 below --fail-under or --target-vmaf, 2 bad input, 3 an encoder or this machine failed.
    """
    destinations = Destinations(report or [], junit, output, pushgateway, fail_under, json=json)

    def work_on() -> int:
        cluster.check(source)
        destinations.check(RENDERED)
        check_score("--target-vmaf", target_vmaf)
        chosen = _config(config, encoders or [], quality, target_vmaf, tolerance)
        settings = TuneSettings(options=ScoreOptions(model=model, pooling=pooling), parallel=parallel)
        check_options(settings.options, {"pooling": "--pool"})
        with TuneDisplay(quiet=quiet or json) as display:
            result = asyncio.run(_compare(source, chosen, settings, Place(WorkFolder(work), cluster, display)))
        return destinations.deliver(_deliverable(result, fail_under))

    run_tuning(work_on)


def _deliverable(result: CompareResult, floor: float | None) -> Deliverable:
    made = [(variant, one) for variant in result.variants for one in variant.encodes if not one.error]
    return Deliverable(
        source=result.source.uri,
        show=lambda: _print(result),
        as_json=lambda: as_json(result),
        render=lambda path: _rendered(path, result),
        encodes=[(f"{variant.name.replace(':', '-')}-{one.quality:g}", one) for variant, one in made],
        figures=figures(result),
        verdicts=verdicts(result, floor),
    )


def _print(result: CompareResult) -> None:
    from vmafx.cli.tune_table import print_comparison  # noqa: PLC0415 - imports rich, which takes time

    print_comparison(result)


async def _compare(source: str, config: TuneConfig, settings: TuneSettings, place: Place) -> CompareResult:
    end_on_sigterm()
    tools = await EncoderTools.find()
    variants = config.variants(tools)
    plans = config.plans(variants)
    together = len(plans) if config.targetVmaf is None else len(variants)
    async with workshop(source, tools, settings.for_encodes(together), place) as shop:
        if config.targetVmaf is None:
            return await compare_encoders(shop, plans, place.display.update)
        search = TargetSearch(shop, Goal(config.targetVmaf, config.tolerance), place.display.update)
        return compare_result(shop, await search.run([one.variant for one in variants]))


def _config(
    path: Path | None, encoders: Sequence[str], quality: str, target: float | None, tolerance: float | None
) -> TuneConfig:
    config = TuneConfig.read(path) if path is not None else TuneConfig()
    names = [name for text in encoders for name in text.split(",") if name.strip()]
    given: dict[str, object] = {}
    if names:
        given["encoders"] = tuple(VariantConfig(name.strip()) for name in names)
    if quality:
        given["qualities"] = parse_numbers(quality, "--quality")
        given.setdefault("encoders", config.without_qualities)
    if target is not None:
        given["targetVmaf"] = target
    if tolerance is not None:
        if not 0 < tolerance <= 20:
            raise BadInput("options", f"--tolerance must be above 0 and at most 20, not {tolerance}")
        given["tolerance"] = tolerance
    chosen = msgspec.structs.replace(config, **given)
    if chosen.targetVmaf is not None and quality:
        raise BadInput("options", "--quality is for comparisons, and a search for a target tries qualities itself")
    if chosen.targetVmaf is None and tolerance is not None:
        raise BadInput("options", "--tolerance is for a search: set --target-vmaf, too")
    return chosen


def _rendered(path: Path, result: CompareResult) -> bytes:
    match path.suffix.lower():
        case ".json":
            return as_json(result)
        case ".csv":
            return as_csv(result)
    from vmafx.tune.page import comparison_page  # noqa: PLC0415 - imports matplotlib, which takes time

    return comparison_page(result)


app.command(context_settings=HELP)(with_cluster_flags(ladder))


def main() -> None:
    """Run a command; an expected error becomes one line and an exit code."""
    signal.signal(signal.SIGTERM, lambda *_: _interrupt())
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:  # noqa: BLE001 - a bug: show the traceback, and use an exit code that nothing else has
        traceback.print_exc()
        sys.exit(EXIT_INTERNAL_ERROR)


def _interrupt() -> None:
    """Handle SIGTERM like Ctrl-C, so that the command cleans up."""
    raise KeyboardInterrupt
