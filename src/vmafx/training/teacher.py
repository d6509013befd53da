"""The model whose scores are learned: the base model of the training or, if that is a learned one, the base of that."""

import numpy as np

from vmafx.scoring.media.uri import display_name
from vmafx.training.distillation import HIGHEST, LOWEST, StartingModel
from vmafx.training.network import from_model, scores
from vmafx.training.samples import InvalidSamples, SampleBatch
from vmafx.training.targets import labelled_frames

MAX_ERROR = 15.0  # points by which scores may differ on average from what the teacher gives these features


class Teacher:
    """Knows whose scores a training learns. A training must not learn from its own versions, nor from other models."""

    def __init__(self, base_model: str, start: StartingModel) -> None:
        distilled = start.rms_error is not None
        self._names = {base_model, display_name(base_model)} if distilled else {start.model.base}
        self._network = from_model(start.model) if distilled else None

    def scored(self, batch: SampleBatch) -> bool:
        """Whether the scores are those of the teacher."""
        return batch.model in self._names

    def check(self, batch: SampleBatch) -> None:
        """Raise InvalidSamples for scores that the teacher cannot have given.

        They are compared with its distilled network, which knows the usual range of features only.
        """
        if self._network is None or not self.scored(batch):
            return
        features, given, _ = labelled_frames(batch)
        usual = ((features >= LOWEST) & (features <= HIGHEST)).all(axis=1)
        if not usual.any():
            return
        parameters, normalisation = self._network
        error = float(np.abs(scores(parameters, normalisation.inputs(features[usual])) - given[usual]).mean())
        if error > MAX_ERROR:
            raise InvalidSamples(f"the scores differ from those of {batch.model} by {error:.0f} points on average")
