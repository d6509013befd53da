"""The scripts of docs/ci.md, run by sh as in a CI pipeline."""

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.support.fleet import ScoringFleet
from tests.support.project import ROOT
from tests.support.video import ffmpeg
from vmafx.devcluster import DevCluster


def script_with(text: str) -> str:
    """The script of the page that contains this text."""
    blocks = re.findall(r"test_ci_page\.py -->\n```sh\n(.*?)```", (ROOT / "docs/ci.md").read_text(), re.DOTALL)
    (block,) = [one for one in blocks if text in one]
    return str(block)


class Pipeline(NamedTuple):
    """A folder with clips, and the environment of a CI job."""

    folder: Path
    environment: dict[str, str]

    async def run(self, script: str) -> tuple[int | None, str, str]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "sh", "-eu", "-c", script, cwd=self.folder, env=self.environment, stdout=pipe, stderr=pipe
        )
        out, err = await process.communicate()
        return process.returncode, out.decode(), err.decode()


@pytest.fixture
def pipeline(clips: Path, cluster: DevCluster, namespace: str, tmp_path: Path) -> Pipeline:
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    folder = tmp_path / "build"
    folder.mkdir()
    shutil.copy(clips / "reference.mkv", folder)
    ffmpeg("-i", clips / "reference.mkv", "-c:v", "libx264", "-qp", "0", folder / "high.mp4")
    ffmpeg("-i", clips / "reference.mkv", "-vf", "gblur=sigma=8", "-c:v", "libx264", folder / "low.mp4")
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    for one in config["contexts"]:
        one["context"]["namespace"] = namespace
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    kubeconfig = str(tmp_path / "kubeconfig")
    environment = {"PATH": path, "HOME": str(tmp_path), "KUBECONFIG": kubeconfig, "CLIPS": str(folder)}
    return Pipeline(folder, environment)


async def test_a_local_pipeline_fails_below_the_threshold_and_keeps_its_reports(pipeline: Pipeline) -> None:
    script = script_with("--fail-under")
    code, out, err = await pipeline.run(script)
    assert (code, out) == (1, "quality is below the threshold; see quality/report.html\n"), err
    assert "low.mp4" in err
    assert sorted(file.name for file in (pipeline.folder / "quality").iterdir()) == [
        "frames.csv", "report.html", "scores.json",
    ]  # fmt: skip
    _, scores, _ = await pipeline.run(script_with(".error.message"))
    assert [line.split()[1] for line in scores.splitlines()] == ["low.mp4", "high.mp4"]

    code, out, err = await pipeline.run(script.replace("--fail-under 80", "--fail-under 0"))
    assert (code, out) == (0, "quality is fine\n"), err
    (pipeline.folder / "low.mp4").unlink()
    code, out, err = await pipeline.run(script)
    assert (code, out) == (2, "a clip or an option is wrong\n"), err
    _, scores, _ = await pipeline.run(script_with(".error.message"))
    assert "no file low.mp4" in scores


async def test_a_pipeline_scores_a_clip_on_a_cluster(pipeline: Pipeline, fleet: ScoringFleet) -> None:
    script = script_with("jq -e")
    code, out, err = await pipeline.run(script)
    assert (code, out) == (0, "true\n"), err
    job = json.loads((pipeline.folder / "quality/job.json").read_text())
    assert (job["status"]["phase"], job["spec"]["ttlSecondsAfterFinished"]) == ("Succeeded", 24 * 3600)
    code, out, err = await pipeline.run(script.replace("high.mp4", "low.mp4"))
    assert (code, out) == (1, "false\n"), err


async def test_a_pipeline_scores_several_clips_on_a_cluster(pipeline: Pipeline, fleet: ScoringFleet) -> None:
    script = script_with("for clip in")
    code, out, err = await pipeline.run(script)
    assert code == 0, err
    assert [Path(line.split()[1]).name for line in out.splitlines()] == ["low.mp4", "high.mp4"]
    (pipeline.folder / "low.mp4").unlink()
    code, _, err = await pipeline.run(script)
    assert code == 2, err
