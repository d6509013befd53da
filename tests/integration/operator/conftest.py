"""Fixtures for the tests of the operator."""

from collections.abc import AsyncIterator

import pytest

from tests.support.agent_fleet import AgentFleet, agent_fleet
from vmafx.kube import Client


@pytest.fixture
async def agents(client: Client, namespace: str) -> AsyncIterator[AgentFleet]:
    """The operator in this process, with a clock moved by the test, which acts as controller and agents."""
    async with agent_fleet(client, namespace) as fleet:
        yield fleet
