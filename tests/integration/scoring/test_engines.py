"""Engines: which one a score gets on a machine, and what those that use a device are told."""

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.support.video import lossless, scene
from vmafx.api.hardware import Backend
from vmafx.scoring.engines import find
from vmafx.scoring.engines.engine import Engine, Measurement
from vmafx.scoring.engines.find import Engines
from vmafx.scoring.errors import BadInput, NodeFault, ScoringError
from vmafx.scoring.request import ScoreOptions, Source
from vmafx.scoring.score import Scorer

# Named by VMAFX_FFMPEG_BIN; it says what it was called with instead of scoring.
FFMPEG = """#!/bin/sh
case "$*" in
  *-version*) echo 'ffmpeg version 7.1';;
  *-filters*) echo ' ... libvmaf VV->V x'; echo ' ... libvmaf_cuda VV->V x';;
  *-encoders*) ;;
  *-protocols*) echo 'Input:'; echo '  fd';;
  *) echo "$*" > $(dirname $0)/arguments; env > $(dirname $0)/environment; exit 1;;
esac
"""
DEVICES: dict[str, Backend] = {"dev/nvidia0": "cuda", "dev/kfd": "hip"}
VENDOR = "sys/class/drm/renderD128/device/vendor"


class DevicesFail(Engines):
    """A machine that has GPUs, on which no engine starts. It has no torch."""

    def __init__(self, *backends: Backend) -> None:
        super().__init__()
        self.started: list[Backend] = []
        self._backends = backends

    def _missing(self, _backend: Backend) -> str:
        return ""

    def _present(self) -> Any:
        return iter(self._backends)

    def _make(self, backend: Backend) -> Coroutine[Any, Any, Engine]:
        self.started.append(backend)
        return super()._make(backend) if backend == "cpu" else fail(backend)


async def fail(backend: Backend) -> Engine:
    raise NodeFault(f"{backend} fails")


def options(*features: str) -> Measurement:
    return Measurement(model=find.PROBE_MODEL, features=features)


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
async def test_libvmaf_on_a_device_is_told_which_devices_it_may_use(backend: Backend, tmp_path: Path) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text(FFMPEG)
    program.chmod(0o755)
    environ = {**os.environ, "VMAFX_FFMPEG_BIN": str(program), "VMAFX_ENGINE": "ffmpeg"}
    environ |= {"CUDA_VISIBLE_DEVICES": "3", "LD_LIBRARY_PATH": "/driver", "AWS_SECRET_ACCESS_KEY": "secret"}
    clip = Source(str(lossless(scene(frames=2, size=(64, 64)), tmp_path / "clip.mkv")))
    with pytest.raises(ScoringError, match="exit code 1"):
        await Scorer(Engines(environ)).score(clip, clip, ScoreOptions(backend=backend))
    told = (tmp_path / "environment").read_text().splitlines()
    on_device = backend == "cuda"
    assert ("CUDA_VISIBLE_DEVICES=3" in told, "LD_LIBRARY_PATH=/driver" in told) == (on_device, on_device)
    assert not any("secret" in line for line in told)
    assert ("libvmaf_cuda=" in (tmp_path / "arguments").read_text()) == on_device


async def test_an_ffmpeg_without_the_filter_of_a_backend_is_a_fault_of_the_node() -> None:
    with pytest.raises(NodeFault, match=r"backend cuda \(an NVIDIA GPU\): .* has no filter libvmaf_cuda"):
        await Engines({**os.environ, "VMAFX_ENGINE": "ffmpeg"}).choose("cuda")
    with pytest.raises(NodeFault, match=r"backend hip \(an AMD GPU\): ffmpeg has no filter for it"):
        await Engines({**os.environ, "VMAFX_ENGINE": "ffmpeg"}).choose("hip")


def test_an_unknown_engine_is_bad_input() -> None:
    with pytest.raises(BadInput, match="VMAFX_ENGINE"):
        Engines({"VMAFX_ENGINE": "magic"})


@pytest.mark.parametrize("path", DEVICES)
def test_devices_are_found_by_the_files_of_their_drivers(path: str, tmp_path: Path) -> None:
    backend = DEVICES[path]
    assert not find._has_device(backend, tmp_path)
    (tmp_path / path).parent.mkdir()
    (tmp_path / path).touch()
    assert [other for other in ("cuda", "hip", "sycl") if find._has_device(other, tmp_path)] == [backend]


@pytest.mark.parametrize(("vendor", "found"), [("0x8086", True), ("0x1002", False)])
def test_only_render_nodes_of_intel_count_for_sycl(vendor: str, found: bool, tmp_path: Path) -> None:
    (tmp_path / VENDOR).parent.mkdir(parents=True)
    (tmp_path / VENDOR).write_text(f"{vendor}\n")
    assert find._has_device("sycl", tmp_path) == found


def test_a_device_counts_only_with_an_engine_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "_has_device", lambda _: True)
    assert list(Engines({})._present()) == []  # torch is not installed
    assert list(Engines({"VMAFX_ENGINE": "ffmpeg"})._present()) == ["cuda"]


async def test_a_device_that_fails_is_tried_again_after_a_minute_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that names no backend goes on with the next one."""
    engines = DevicesFail("cuda", "hip")
    for _ in range(3):
        assert (await engines.choose(None, options())).backend == "cpu"
    assert engines.started == ["cuda", "hip", "cpu"]
    monkeypatch.setattr(find, "RETRY_SECONDS", 0.0)
    assert (await engines.choose(None, options())).backend == "cpu"
    assert engines.started == ["cuda", "hip", "cpu", "cuda", "hip"]


async def test_a_device_that_is_named_is_tried_each_time() -> None:
    engines = DevicesFail("cuda")
    for _ in range(2):
        with pytest.raises(NodeFault, match="cuda fails"):
            await engines.choose("cuda")
    assert engines.started == ["cuda", "cuda"]


async def test_no_device_is_started_for_features_that_only_libvmaf_measures() -> None:
    engines = DevicesFail("cuda")
    assert (await engines.choose(None, options("psnr"))).backend == "cpu"
    assert engines.started == ["cpu"]


async def test_an_engine_is_started_once_for_scores_at_the_same_time() -> None:
    engines = DevicesFail()
    one, other = await asyncio.gather(engines.choose(), engines.choose())
    assert one is other
    assert engines.started == ["cpu"]
