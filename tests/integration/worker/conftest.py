"""Clips, and a worker to score them."""

from pathlib import Path

import pytest

from tests.support.video import ffmpeg, long_clip, lossless, scene
from tests.support.worker_command import Worker


@pytest.fixture(scope="package")
def worker_clips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clips")
    reference = lossless(scene(frames=12), folder / "reference.mkv")
    ffmpeg("-i", reference, "-c:v", "libx264", "-crf", "34", folder / "distorted.mp4")
    ffmpeg("-i", reference, "-c:v", "libx264", "-frames:v", "5", folder / "short.mp4")
    long_clip(folder / "long.mkv", frames=150)
    return folder


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)
