"""The process of `vmafx trainer`: settings, HTTP server, signals."""

import asyncio
import hmac
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from vmafx import logs
from vmafx.http.errors import StatusError
from vmafx.http.request import HttpRequest
from vmafx.http.server import serve_http
from vmafx.jobs.sample_token import TrainerClaims, trainer_audience, verify
from vmafx.logs import log
from vmafx.runtime.role import run_role
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.segments import LogInUse
from vmafx.settings import load
from vmafx.trainer.base import load_base
from vmafx.trainer.metrics import TrainerMetrics
from vmafx.trainer.server import LIMITS, TrainerSite
from vmafx.trainer.settings import ABOUT, PROGRAM, TrainerSettings
from vmafx.trainer.trainer import Trainer
from vmafx.training.config import TrainingConfig
from vmafx.training.registry import ModelRepository


def main(arguments: Sequence[str] | None = None) -> None:
    """Train until SIGTERM or Ctrl-C; exit code 1 if the folder cannot be used."""
    settings = load(TrainerSettings, PROGRAM, ABOUT, sys.argv[1:] if arguments is None else arguments)
    logs.configure(settings.log_level, settings.log_format)
    run_role("trainer", partial(run, settings), (OSError, LogInUse))


async def run(settings: TrainerSettings, stop: asyncio.Event) -> None:
    """Train and serve until `stop` is set."""
    config = settings.config
    trainer = Trainer(config, settings.folder, partial(load_base, config.base_model, os.environ), _repository(config))
    metrics = TrainerMetrics(trainer.status)
    routes = TrainerSite(trainer.accept, trainer.add_human_scores, _authorization(settings))
    site = routes.site(
        status=lambda: msgspec.json.encode(trainer.status()),
        not_ready=trainer.not_ready,
        not_healthy=trainer.not_healthy,
        registry=metrics.registry,
    )
    log.info("starting", training=f"{config.namespace}/{config.name}", folder=settings.folder, pid=os.getpid())
    async with serve_http(settings.address, site, limits=LIMITS) as port:
        log.info("serving", port=port)
        await trainer.run(stop)
    log.info("stopped")


def _repository(config: TrainingConfig) -> ModelRepository | None:
    if not config.output_registry:
        return None
    policy = MediaPolicy.from_environ(os.environ)
    return ModelRepository(
        config.output_registry, insecure=policy.insecure_registries, docker_config=policy.docker_config
    )


def _authorization(settings: TrainerSettings) -> Callable[[HttpRequest], None]:
    """Accept callers with a token for this training, signed with the key of its namespace."""
    key = settings.key.encode()
    audience = trainer_audience(settings.config.namespace, settings.config.name)
    if not key:
        log.warn("VMAFX_SAMPLES_KEY is not set: no samples are accepted")

    def authorize(request: HttpRequest) -> None:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        claims = verify(key, token, TrainerClaims) if key and kind.lower() == "bearer" else None
        if claims is None or not hmac.compare_digest(claims.audience, audience):
            raise StatusError("UNAUTHENTICATED", "a token for this training is required")

    return authorize


if __name__ == "__main__":
    main()
