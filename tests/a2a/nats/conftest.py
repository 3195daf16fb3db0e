"""Runs the suites of what is built on a connection over both kinds of connection."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.a2a.nats import connections

_BOTH = {
    "test_core",
    "test_durable",
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
    if metafunc.module.__name__.rpartition(".")[2] in _BOTH:
        metafunc.fixturenames.append("own_connection")
        metafunc.parametrize("own_connection", [False, True], ids=["nats-py", "own"], indirect=True)


@pytest.fixture
def own_connection(request: pytest.FixtureRequest) -> Generator[None]:
    connections.own = request.param
    yield
    connections.own = False
