"""Comparisons of encoders as tables for people."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vmafx.tune.results import CompareResult, VariantResult


def print_comparison(result: CompareResult) -> None:
    console = Console()
    table = Table(title=Text(result.source.uri), title_justify="left")
    table.add_column("encoder", no_wrap=True)
    wide = console.width >= 76
    heads = ("quality", "kbit/s", "VMAF", *(("p5", "min") if wide else ()), "encoded at")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for variant in result.variants:
        for encode in variant.encodes:
            found = variant.target is not None and variant.target.quality == encode.quality
            name = Text(variant.name, style="bold" if found else "")
            if encode.score is None:
                table.add_row(name, f"{encode.quality:g}", *["-"] * (len(heads) - 2), "failed")
                continue
            kbits = encode.bitrate / 1000
            spread = [f"{encode.p5:.2f}", f"{encode.lowest:.2f}"] if wide else []
            rate = f"{kbits:,.0f}" if kbits >= 10 else f"{kbits:.2f}"
            table.add_row(name, f"{encode.quality:g}", rate, f"{encode.score:.3f}", *spread, f"{encode.fps:,.1f} fps")
        table.add_section()
    console.print(table)
    for variant in result.variants:
        if line := _line(variant, result.variants[0]):
            console.print(Text(line), soft_wrap=True)
    for note in result.notes:
        console.print(Text(f"note: {note}", style="yellow"), soft_wrap=True)


def _line(variant: VariantResult, first: VariantResult) -> str:
    """What is to be said of a variant as a whole."""
    parts = [variant.summary] if variant.summary else []
    if variant.bdRate is not None:
        parts.append(f"BD-rate {variant.bdRate:+.1f} % against {first.name}")
    if variant.bdScore is not None:
        parts.append(f"BD-VMAF {variant.bdScore:+.2f}")
    return f"{variant.name}: {', '.join(parts)}" if parts else ""
