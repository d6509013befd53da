"""What to score and how: declared here once, for a job's spec, for the work that a worker gets, and for the scorer."""

from typing import Annotated, Literal

from msgspec import Meta

from vmafx.api.fields import ModelName, Uri, doc, pattern, schema
from vmafx.api.meta import ApiModel

DEFAULT_MODEL = "vmaf_v0.6.1"
MAX_THREADS = 128  # with more, ffmpeg only gets slower

Feature = Literal["psnr", "ssim", "ms_ssim", "psnr_hvs", "ciede", "cambi"]
PixelFormat = Literal[
    "yuv420p", "yuv422p", "yuv444p",
    "yuv420p10le", "yuv422p10le", "yuv444p10le",
    "yuv420p12le", "yuv422p12le", "yuv444p12le",
    "yuv420p16le", "yuv422p16le", "yuv444p16le",
    "gray", "gray10le", "gray12le", "gray16le",
]  # fmt: skip
FrameRate = Annotated[float, Meta(gt=0, le=1000)]
Threads = Annotated[int, Meta(ge=1, le=MAX_THREADS), schema(format="int32")]
Side = Annotated[int, Meta(ge=1, le=16384), schema(format="int32")]
Pooling = Annotated[
    str,
    pattern(
        r"^(mean|harmonic_mean|min|max|median|p[1-9][0-9]?)\Z",
        "must be mean, harmonic_mean, min, max, median or a percentile p1 to p99",
        max_length=16,
    ),
]


class RawFormat(ApiModel):
    """What a raw clip does not say of itself."""

    width: Annotated[Side, doc("Width of a frame in pixels.")]
    height: Annotated[Side, doc("Height of a frame in pixels.")]
    pixelFormat: Annotated[PixelFormat, doc("Layout and depth of a pixel, by ffmpeg's name.")]
    frameRate: Annotated[FrameRate | None, doc("Frames per second; 25 where it is not said.")] = None


class ScoringOptions(ApiModel):
    """How to score."""

    subsample: Annotated[int, Meta(ge=1, le=1000), schema(format="int32"), doc("Score every n-th frame.")] = 1
    pooling: Annotated[
        Pooling,
        doc("How the frames' scores become one: mean, harmonic_mean, min, max, median, or a percentile p1 to p99."),
    ] = "mean"
    features: Annotated[
        tuple[Feature, ...],
        Meta(max_length=6),
        schema(x_kubernetes_list_type="set"),
        doc("Further measures to take beside VMAF."),
    ] = ()
    threads: Annotated[Threads | None, doc("Threads to score with.")] = None


class ScoringSpec(ApiModel):
    """What to score, how, and where the report goes."""

    reference: Annotated[Uri, doc("The pristine clip, as a URI.")]
    distorted: Annotated[Uri, doc("The encoded clip to judge, as a URI.")]
    referenceFormat: Annotated[RawFormat | None, doc("Needed when the reference is raw video.")] = None
    distortedFormat: Annotated[RawFormat | None, doc("Needed when the distorted clip is raw video.")] = None
    model: Annotated[ModelName, doc("The VMAF model: a built-in one's name, or a URI.")] = DEFAULT_MODEL
    options: Annotated[ScoringOptions | None, doc("How to score.")] = None
    output: Annotated[Uri | None, doc("Where to put the per-frame report, as a URI.")] = None
