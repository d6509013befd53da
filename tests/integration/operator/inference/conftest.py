"""Fixtures for the tests of inference services."""

from collections.abc import AsyncIterator

import pytest

from tests.support.serving import Serving, serving
from vmafx.kube import Client


@pytest.fixture
async def services(client: Client, namespace: str) -> AsyncIterator[Serving]:
    async with serving(client, namespace) as services:
        yield services
