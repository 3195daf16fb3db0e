"""Runs the suites of what is built on a connection over both kinds of connection."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.a2a.nats import connections

_BOTH = {
    "test_core",
    "test_durable",
    "test_durable_clients",
    "test_durable_kills",
    "test_durable_sdk",
    "test_durable_wire",
    "test_faults_core",
    "test_faults_durable",
    "test_kv",
    "test_objects",
    "test_taskstore",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.path.stem in _BOTH:
        metafunc.parametrize("own_connection", [False, True], ids=["nats-py", "own"], indirect=True)


@pytest.fixture(autouse=True)
def own_connection(request: pytest.FixtureRequest) -> Generator[None]:
    """Other suites know nothing of it and get nats-py's."""
    connections.own = getattr(request, "param", False)
    yield
    connections.own = False
