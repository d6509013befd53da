"""An inference service of a release, and requests to its URL."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.clips import ClipServer
from tests.e2e.product import Product
from tests.support.project import ROOT
from tests.support.waiting import until

PRIMARY, CANARY = "vmaf_v0.6.1", "vmaf_v0.6.1neg"  # models
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
READY = 180  # seconds until a change is complete, on a busy machine


class Answers(msgspec.Struct):
    """What tests.e2e.load printed: the number of answers of each model, the scores, and why requests failed."""

    models: dict[str, int] = {}
    scores: list[tuple[str, float]] = []  # with the model
    failed: list[str] = []

    def percent(self, model: str) -> float:
        return 100 * self.models.get(model, 0) / max(1, sum(self.models.values()))

    def read(self, output: str) -> None:
        *lines, last = map(json.loads, output.splitlines())
        self.models = last["models"]
        self.scores = [(one["model"], one["score"]) for one in lines if "score" in one]
        self.failed = [one["error"] for one in lines if "error" in one]


class Scoring(Answers, kw_only=True):
    """Answers of requests that are being sent."""

    output: Path

    def wait_for(self, model: str) -> None:
        """Wait until this model has scored another clip."""
        before = self._scored(model)
        until(lambda: self._scored(model) > before, f"{model} scores", READY)

    def _scored(self, model: str) -> int:
        *lines, _ = self.output.read_text().split("\n")
        return [json.loads(line).get("model") for line in lines].count(model)


def assert_scored(scored: Answers, score: float) -> None:
    """No upload failed, both models scored, and the scores of PRIMARY are that of `vmafx score`."""
    assert scored.failed == []
    assert scored.models.keys() == {PRIMARY, CANARY}
    scores = [value for model, value in scored.scores if model == PRIMARY]
    assert scores == pytest.approx([score] * len(scores), abs=1e-6)


def assert_split(asked: Answers, count: int, weight: float, tolerance: float) -> None:
    """None of so many requests failed, and the canary answered its share of them."""
    assert asked.failed == []
    assert sum(asked.models.values()) == count
    assert asked.percent(CANARY) == pytest.approx(weight, abs=tolerance)


class InferenceService:
    """A ZerfooInferenceService. With `gateway` (HOST:PORT), requests to its URL go there, as if it resolved to that."""

    def __init__(self, product: Product, name: str, clips: ClipServer, gateway: str = "") -> None:
        self._product, self._name, self._clips, self._gateway = product, name, clips, gateway

    # The object

    def create(self, **spec: Any) -> None:
        metadata = {"name": self._name}
        spec = {"resources": {"cpu": "100m", "memory": "512Mi"}, **spec}
        kind = "ZerfooInferenceService"
        self._product.apply({"apiVersion": "vmafx.dev/v1", "kind": kind, "metadata": metadata, "spec": spec})
        self._wait(spec)

    def change(self, **spec: Any) -> None:
        """Change fields of the spec, and wait until the service is Ready with them."""
        patch = json.dumps({"spec": spec})
        self._product.kubectl("patch", f"zis/{self._name}", "--type=merge", f"--patch={patch}")
        self._wait(spec)

    @property
    def status(self) -> Any:
        return self._read()["status"]

    def _read(self) -> Any:
        return self._product.get("zis", self._name)

    def _wait(self, spec: dict[str, Any]) -> None:
        generation = self._read()["metadata"]["generation"]

        def current() -> bool:
            conditions = self._read().get("status", {}).get("conditions", [])
            return any(
                one["type"] == "Ready" and one["status"] == "True" and one.get("observedGeneration", 0) >= generation
                for one in conditions
            )

        until(current, f"the service is Ready with {spec}", READY)

    # Requests

    def ask(self, count: int) -> Answers:
        """Ask so many times which model answers."""
        done = subprocess.run(
            self._command(count), cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=400, check=False
        )
        assert done.returncode == 0, done.stderr
        answers = Answers()
        answers.read(done.stdout)
        return answers

    @contextmanager
    def scoring(self) -> Iterator[Scoring]:
        """Score clips, one after the other, until the end of the block; then what it yields has the answers."""
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "output"  # and no pipe, which would be full after a thousand scores
            scoring = Scoring(output=output)
            with (
                output.open("w") as file,
                subprocess.Popen(self._command(0), cwd=ROOT, env=ENVIRONMENT, stdout=file) as process,
            ):
                try:
                    yield scoring
                finally:
                    process.terminate()
                    process.wait(timeout=120)
            scoring.read(output.read_text())

    def _command(self, count: int) -> list[str]:
        arguments = [self.status["url"], str(self._clips.folder), str(count), *([self._gateway] * bool(self._gateway))]
        return self._product.cluster.command([sys.executable, "-m", "tests.e2e.load", *arguments])
