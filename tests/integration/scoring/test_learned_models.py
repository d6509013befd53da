"""Scores of learned models: from a file and from a real registry, by the library, the command and the worker."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.registry import FEATURES, docker_config, learned_model, make_version, password_auth, running_registry
from tests.support.video import ffmpeg, lossless, scene
from vmafx.jobs.attempt import AttemptSpec, decode_result
from vmafx.scoring.cache import ResultCache
from vmafx.scoring.engines.find import Engines
from vmafx.scoring.errors import BadInput
from vmafx.scoring.learned import LearnedModel, encode_model
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.request import ScoreOptions, Source
from vmafx.scoring.result import Report
from vmafx.scoring.score import Scorer
from vmafx.training.registry import ModelRepository

VMAFX = str(Path(sys.executable).with_name("vmafx"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("clips")
    reference = lossless(scene(), folder / "reference.mkv")
    distorted = folder / "distorted.mp4"
    ffmpeg("-i", reference, "-c:v", "libx264", "-crf", "34", distorted)
    return reference, distorted


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URI of a model in a registry with a password, and the folder of its credentials."""
    folder = tmp_path_factory.mktemp("registry")
    with running_registry(folder, password_auth(folder)) as registry:
        config = docker_config(folder / "docker", registry.address)
        version = make_version(folder / "versions", learned_model())
        ModelRepository(f"{registry.address}/team/vmaf", docker_config=config).push(version, 1)
        yield f"oci://{registry.address}/team/vmaf@{version.digest}", config


async def score(pair: tuple[Path, Path], model: str, cache: Path | None = None, **policy: Any) -> Report:
    results = ResultCache(cache) if cache else None
    scorer = Scorer(Engines(), MediaPolicy(**policy), cache=results)
    return await scorer.score(Source(str(pair[0])), Source(str(pair[1])), ScoreOptions(model=model))


def write(path: Path, model: LearnedModel) -> str:
    path.write_bytes(encode_model(model))
    return str(path)


async def test_a_learned_model_predicts_from_the_features_of_its_base(pair: tuple[Path, Path], tmp_path: Path) -> None:
    base = await score(pair, "vmaf_v0.6.1")
    for name in (write(tmp_path / "mine.json", learned_model()), (tmp_path / "mine.json").as_uri()):
        report = await score(pair, name)
        assert report.values["vmaf"] == learned_model().predict(base.values)
        assert report.values["vmaf"] != base.values["vmaf"]
        assert {feature: report.values[feature] for feature in FEATURES} == {
            feature: base.values[feature] for feature in FEATURES
        }
        assert report.result.score == pytest.approx(sum(report.values["vmaf"]) / len(report.values["vmaf"]))
        assert report.result.features["vmaf"].mean == report.result.score
        assert report.result.model == name
        assert any("predicted" in note and "vmaf_v0.6.1" in note for note in report.result.notes)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"features": [*FEATURES[:-1], "cambi"]}, "needs the feature cambi"),
        ({"deviation": [1e-308] * 6, "hidden": [[1e300, -1e300, 0, 0, 0, 0]] * 2}, "scores that are not numbers"),
        ({"hidden": [[0.5] * 5] * 2}, "weights do not match its 6 features"),
        ({"features": [], "mean": [], "deviation": [], "hidden": [[], []]}, "has 0 features"),
        ({"hidden": [[0.5] * 6] * 300}, "300 hidden units"),
        ({"format": "vmafx.model/v2"}, "has the format 'vmafx.model/v2'"),
        ({"offset": "high"}, "is not a learned model"),
    ],
)
async def test_an_unusable_model_is_bad_input(
    pair: tuple[Path, Path], tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    content = msgspec.to_builtins(learned_model()) | change
    (tmp_path / "model.json").write_bytes(msgspec.json.encode(content))
    with pytest.raises(BadInput, match=why):
        await score(pair, str(tmp_path / "model.json"))


async def test_the_digest_is_in_the_cache_key(
    pair: tuple[Path, Path], tmp_path: Path, published: tuple[str, Path]
) -> None:
    uri, config = published
    cache, name = tmp_path / "cache", tmp_path / "model.json"
    first = await score(pair, write(name, learned_model()), cache)
    again = await score(pair, uri, cache, private=True, docker_config=config)
    assert (first.result.cached, again.result.cached) == (False, True)  # the same content
    assert again.result.model == uri
    other = await score(pair, write(name, learned_model(offset=0.2)), cache)
    assert not other.result.cached
    assert other.result.key != first.result.key
    assert other.result.score < first.result.score


def test_the_command_scores_with_a_model_in_a_registry(
    pair: tuple[Path, Path], published: tuple[str, Path], tmp_path: Path
) -> None:
    uri, config = published

    def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        command = [VMAFX, "score", *map(str, pair), "--json", "--no-cache", *arguments]
        environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "COLUMNS": "300"} | variables
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    done = run("--model", uri, "--allow-private", DOCKER_CONFIG=str(config))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert uri in json.dumps(answer)
    assert "predicted the scores with a learned model" in json.dumps(answer)

    for arguments, why in (
        (("--model", uri), "VMAFX_MEDIA_ALLOW_PRIVATE"),
        (("--model", uri, "--allow-private"), "permission denied"),
        (("--model", uri.partition("@")[0] + ":latest", "--allow-private"), "oras resolve"),
    ):
        done = run(*arguments)
        assert done.returncode == 2
        assert why in done.stderr


async def test_the_worker_scores_with_a_model_in_a_registry(
    pair: tuple[Path, Path], published: tuple[str, Path], tmp_path: Path
) -> None:
    uri, config = published
    expected = await score(pair, uri, private=True, docker_config=config)
    attempt = AttemptSpec(pair[0].as_uri(), pair[1].as_uri(), id="uid-0", model=uri)
    environment = {
        "VMAFX_WORK": msgspec.json.encode(attempt).decode(),
        "VMAFX_ANSWER_FILE": str(tmp_path / "result"),
        "VMAFX_MEDIA_ALLOW_PRIVATE": "true",
        "DOCKER_CONFIG": str(config),
        "PATH": "/usr/bin:/bin",
    }
    worker = await asyncio.create_subprocess_exec(VMAFX, "worker", env=environment)
    assert await worker.wait() == 0
    result = decode_result((tmp_path / "result").read_text(), "uid-0")
    assert result is not None
    assert result.score == pytest.approx(expected.result.score)
