"""The clips to score and the scoring options, shared by a job's spec, an attempt's spec and `vmafx score`."""

from typing import Annotated, Literal

from msgspec import Meta

from vmafx.api.fields import ModelName, Uri, doc, pattern, schema
from vmafx.api.hardware import Backend
from vmafx.api.meta import ApiModel

DEFAULT_MODEL = "vmaf_v0.6.1"
MAX_THREADS = 128  # more make ffmpeg slower
CORES_PER_JOB = 4  # where neither the job nor its node says how many
AUTO_THREADS_VARIABLE = "VMAFX_AUTO_THREADS"

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
Dimension = Annotated[int, Meta(ge=1, le=16384), schema(format="int32")]
Pooling = Annotated[
    str,
    pattern(
        r"^(mean|harmonic_mean|min|max|median|p[1-9][0-9]?)\Z",
        "must be mean, harmonic_mean, min, max, median or a percentile p1 to p99",
        max_length=16,
    ),
]


class RawFormat(ApiModel):
    """Format of a raw clip, which has no header."""

    width: Annotated[Dimension, doc("Frame width in pixels.")]
    height: Annotated[Dimension, doc("Frame height in pixels.")]
    pixelFormat: Annotated[PixelFormat, doc("Pixel format, as ffmpeg names it (pix_fmt).")]
    frameRate: Annotated[FrameRate | None, doc("Frames per second. If unset, 25.")] = None


class ScoringOptions(ApiModel):
    """Options that affect how a clip is scored."""

    subsample: Annotated[
        int, Meta(ge=1, le=1000), schema(format="int32"), doc("Score every n-th frame. Defaults to 1: every frame.")
    ] = 1
    pooling: Annotated[
        Pooling,
        doc(
            "Method that combines the scores of the frames into the score of the clip: mean, harmonic_mean, min, max, "
            "median, or a percentile from p1 to p99. Defaults to mean."
        ),
    ] = "mean"
    features: Annotated[
        tuple[Feature, ...],
        Meta(max_length=6),
        schema(x_kubernetes_list_type="set"),
        doc("Features to measure in addition to VMAF, such as psnr. If unset, none."),
    ] = ()
    threads: Annotated[
        Threads | None,
        doc(
            "Number of ffmpeg and libvmaf threads. If unset, the worker's VMAFX_THREADS, or else its CPU limit. A "
            "worker Pod without a CPU limit has as many as the CPUs it requests, but at least four; at most one per "
            "core."
        ),
    ] = None


class ScoringSpec(ApiModel):
    """The clips to score, the model, backend and options, and where to write the report."""

    reference: Annotated[Uri, doc("URI of the reference clip.")]
    distorted: Annotated[Uri, doc("URI of the distorted clip, which is scored.")]
    referenceFormat: Annotated[
        RawFormat | None, doc("Format of the reference clip. Required if it is raw video (.yuv).")
    ] = None
    distortedFormat: Annotated[
        RawFormat | None, doc("Format of the distorted clip. Required if it is raw video (.yuv).")
    ] = None
    model: Annotated[
        ModelName, doc(f"Name of a built-in VMAF model, or URI of a model. Defaults to {DEFAULT_MODEL}.")
    ] = DEFAULT_MODEL
    backend: Annotated[
        Backend | None,
        doc(
            "Backend to score on. A machine without an engine for it fails the attempt. If unset, any node can take "
            "the job, GPU nodes first, and scores with the best engine it has."
        ),
    ] = None
    options: Annotated[ScoringOptions | None, doc("Scoring options. If unset, the defaults of the options apply.")] = (
        None
    )
    output: Annotated[
        Uri | None, doc("URI to write the report to; its suffix selects the format. If unset, no report is written.")
    ] = None
