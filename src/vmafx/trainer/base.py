"""The model that a training starts from: distilled from a model of libvmaf, or a learned model as it is."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from vmafx.logs import log
from vmafx.scoring.engines.ffmpeg import ffmpeg_path
from vmafx.scoring.learned import LearnedModel
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.models import MAX_MODEL_BYTES, open_model
from vmafx.scoring.svr_model import SvrModel, embedded_model, parse_model
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
        if model.learned is not None:
            return model.learned
        if model.fd is not None:
            return parse_model(os.pread(model.fd, MAX_MODEL_BYTES, 0), name)
    return embedded_model(name, Path(ffmpeg_path(environ)))
