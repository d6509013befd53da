"""The model that a training starts from: distilled from a model of libvmaf, or a learned model as it is."""

import asyncio
from collections.abc import Mapping

from vmafx.logs import log
from vmafx.scoring.learned import LearnedModel
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.models import open_model
from vmafx.scoring.svr_model import SvrModel, parameters_of
from vmafx.training.distillation import StartingModel, continue_from, distill


def load_base(name: str, environ: Mapping[str, str]) -> StartingModel:
    """Takes a few seconds, in a thread without an event loop. Raises ScoringError."""
    base = asyncio.run(_read(name, environ))
    if isinstance(base, LearnedModel):
        return continue_from(base)
    start = distill(base)
    log.info("distilled the base model", model=name, error=start.rms_error, max_error=start.max_error)
    return start


async def _read(name: str, environ: Mapping[str, str]) -> SvrModel | LearnedModel:
    async with open_model(name, MediaPolicy.for_jobs(environ)) as model:
        return model.learned if model.learned is not None else parameters_of(model, environ)
