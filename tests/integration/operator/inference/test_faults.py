"""Inference services under faults: at the end each is as its spec says, and its whole history has no violation.

serving_chaos.py has what happens meanwhile, serving_invariants.py what must always hold. `make soak` runs more of it.
"""

import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import get_args

import pytest

from tests.support.serving_chaos import ServingChaos, ServingCluster, serving_cluster
from tests.support.serving_faults import SERVING_FAULTS
from tests.support.serving_plan import Action, actions, make_services

SERVICES, EDITS = 3, 6
SEEDS = (1, 2, 3, 5)  # whose plans have every action


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServingCluster]:
    async with serving_cluster(tmp_path_factory.mktemp("serving")) as cluster:
        yield cluster


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("fault", "seed"), list(zip(SERVING_FAULTS, SEEDS, strict=True)))
async def test_services_survive(shared: ServingCluster, tmp_path: Path, fault: str, seed: int) -> None:
    services = make_services(seed, SERVICES, EDITS)
    assert actions(services) == set(get_args(Action))
    run = ServingChaos(shared, fault, services)
    await SERVING_FAULTS[fault](run, tmp_path, random.Random(seed))
    assert run.scalings
    assert run.changes > 50
