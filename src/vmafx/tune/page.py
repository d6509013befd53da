"""Comparisons and ladders as HTML pages."""

from collections.abc import Iterable, Iterator

from vmafx.reports import (
    ComparedEncode,
    ComparedEncoder,
    ComparisonPage,
    LadderEncode,
    LadderPage,
    LadderShot,
    encoder_comparison,
    formatting,
    ladder_page,
)
from vmafx.tune.results import CompareResult, LadderPoint, LadderResult, SourceFacts, VariantResult


def comparison_page(result: CompareResult) -> bytes:
    facts = _facts(result.source, result.model, result.pooling)
    page = ComparisonPage(
        source=formatting.name(result.source.uri),
        facts=f"{facts}, {formatting.plural(result.parallel, 'encode')} at the same time",
        encoders=[_encoder(variant) for variant in result.variants],
        notes=result.notes,
        failures=result.errors,
    )
    return encoder_comparison(page).encode()


def _encoder(variant: VariantResult) -> ComparedEncoder:
    target = variant.target
    return ComparedEncoder(
        name=variant.name,
        encodes=[
            ComparedEncode(
                quality=f"{one.quality:g}",
                kbits=one.bitrate / 1000,
                score=one.score or 0.0,
                p5=one.p5 or 0.0,
                lowest=one.lowest or 0.0,
                fps=one.fps,
                chosen=target is not None and target.quality == one.quality,
            )
            for one in variant.scored
        ],
        bd_rate=variant.bdRate,
        bd_score=variant.bdScore,
        summary=variant.summary,
    )


def ladder_as_page(result: LadderResult) -> bytes:
    facts = _facts(result.source, result.model, result.pooling)
    page = LadderPage(
        source=formatting.name(result.source.uri),
        facts=f"{facts}, {result.variant}, {result.key_frames}",
        rungs=_rows(result.rungs),
        encodes=_rows(result.encodes),
        shots=list(_shots(result)),
        notes=result.notes,
        failures=result.errors,
    )
    return ladder_page(page).encode()


def _rows(points: Iterable[LadderPoint]) -> list[LadderEncode]:
    return [
        LadderEncode(
            width=point.width,
            height=point.height,
            quality=point.quality,
            kbits=point.encode.bitrate / 1000,
            score=point.encode.score,
            lowest=point.encode.lowest or 0.0,
            target=point.target or 0.0,
        )
        for point in points
        if point.encode.score is not None
    ]


def _shots(result: LadderResult) -> Iterator[LadderShot]:
    """None, if the source was encoded as one."""
    rungs = [rung for rung in result.rungs if rung.shots]
    for number, shot in enumerate(result.shots if rungs else ()):
        encodes = [(rung, rung.shots[number]) for rung in rungs]
        yield LadderShot(
            start=shot.seconds,
            frames=shot.frames,
            rungs=[
                LadderEncode(
                    width=rung.width,
                    height=rung.height,
                    quality=f"{one.quality:g}",
                    kbits=one.bitrate / 1000,
                    score=one.score,
                    lowest=one.lowest,
                )
                for rung, one in encodes
            ],
        )


def _facts(source: SourceFacts, model: str, pooling: str) -> str:
    return ", ".join(
        (
            formatting.size(source.width, source.height),
            f"{formatting.rate(source.frameRate)} fps",
            formatting.plural(source.frames, "frame"),
            f"{model}, {formatting.pooling(pooling)}",
        )
    )
