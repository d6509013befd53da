"""Scoring requests: limits of the options, and cache keys."""

from typing import Any

import pytest

from vmafx.api.scoring import RawFormat, ScoringOptions, ScoringSpec
from vmafx.cores import share_of_cores, usable_cores
from vmafx.scoring.cache import cache_key
from vmafx.scoring.errors import BadInput
from vmafx.scoring.models import VmafModel
from vmafx.scoring.request import OptionSettings, ScoreOptions, Source, check_options

CLIPS = (Source("a"), Source("b"))
RAW = (Source("a", RawFormat(width=64, height=48, pixelFormat="yuv420p")), Source("b"))
ALL_OPTIONS = ScoreOptions(
    features=("psnr", "ssim"), pooling="p5", subsample=2, size=(192, 128),
    shortest=True, conform=True, stretch=True, damaged=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "most"}, "must be mean, harmonic_mean, min, max, median or a percentile p1 to p99, not 'most'"),
        ({"pooling": "p5\n"}, "a percentile p1 to p99, not 'p5\\n'"),
        ({"subsample": 0}, "subsample must be 1 to 1000, not 0"),
        ({"subsample": 1001}, "subsample must be 1 to 1000, not 1001"),
        ({"threads": 129}, "threads must be 1 to 128, not 129"),
        ({"threads": 0}, "threads must be 1 to 128, not 0"),
        ({"features": ("x",)}, "features must be some of cambi, ciede, ms_ssim, psnr, psnr_hvs, ssim, not ('x',)"),
    ],
)  # fmt: skip
def test_a_value_outside_the_limits_of_the_api_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        check_options(ScoreOptions(**options))
    assert str(caught.value).startswith("options: ")
    assert str(caught.value).endswith(message)


def test_values_within_the_limits_are_accepted() -> None:
    for options in (ScoreOptions(), ScoreOptions(threads=128, subsample=1000), ALL_OPTIONS):
        check_options(options)


def test_without_threads_there_are_as_many_as_cores() -> None:
    assert ScoreOptions(threads=3).thread_count() == 3
    assert ScoreOptions().thread_count() == min(usable_cores(), 128)


@pytest.mark.parametrize(
    ("spec", "environ", "expected"),
    [
        ({}, {}, (None, None)),
        ({}, {"VMAFX_BACKEND": "", "VMAFX_THREADS": ""}, (None, None)),
        ({}, {"VMAFX_BACKEND": "auto"}, (None, None)),
        ({}, {"VMAFX_BACKEND": "cuda", "VMAFX_THREADS": "3"}, ("cuda", 3)),
        ({"backend": "cpu"}, {"VMAFX_BACKEND": "cuda"}, ("cpu", None)),
        ({}, {"VMAFX_AUTO_THREADS": "1"}, (None, share_of_cores(1))),
        ({}, {"VMAFX_AUTO_THREADS": "1", "VMAFX_THREADS": "3"}, (None, 3)),
        ({"options": ScoringOptions(threads=2)}, {"VMAFX_AUTO_THREADS": "1"}, (None, 2)),
        ({"backend": "hip", "options": ScoringOptions(threads=2)}, {"VMAFX_THREADS": "3"}, ("hip", 2)),
    ],
)
def test_the_variables_apply_where_the_job_sets_nothing(
    spec: dict[str, Any], environ: dict[str, str], expected: tuple[str | None, int | None]
) -> None:
    options = ScoreOptions.of(ScoringSpec("s3://b/r", "s3://b/d", **spec), OptionSettings.from_environ(environ))
    assert (options.backend, options.threads) == expected


def test_an_unknown_backend_in_the_variable_is_refused() -> None:
    with pytest.raises(BadInput, match="VMAFX_BACKEND: 'CUDA' is not one of auto, cpu, cuda, hip, sycl, metal"):
        OptionSettings.from_environ({"VMAFX_BACKEND": "CUDA"})


@pytest.mark.parametrize(
    ("clips", "options", "key"),
    [
        (CLIPS, ScoreOptions(), "b7d3fd461d41f7fa5d854669857b388815acd6861e48e45db9f7516b3026f91c"),
        (CLIPS, ScoreOptions(threads=3), "b7d3fd461d41f7fa5d854669857b388815acd6861e48e45db9f7516b3026f91c"),
        (CLIPS, ALL_OPTIONS, "ff34dcfbffef538e8f16b0010616aac30954e4406aa5eefba776b151b0169393"),
        (RAW, ALL_OPTIONS, "656a624d69f09c5d7ef7941481153d9f0c39fff5264d679aed0c445bdb7aaf96"),
    ],
)
def test_cache_keys_are_stable(clips: tuple[Source, Source], options: ScoreOptions, key: str) -> None:
    """A new option changes the keys and so invalidates the caches of users; update the keys here only on purpose."""
    model = VmafModel("vmaf_v0.6.1", "vmaf_v0.6.1", "version=vmaf_v0.6.1")
    assert cache_key(("d1", "d2"), clips, model, options, ("PyAV 18.1.0", "cpu", "libvmaf", "7.1", 12)) == key
