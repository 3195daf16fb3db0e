"""Runs the tests on the library's own connection, and those that say so on one of nats-py, too."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from library.nats import connections


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "both_connections: runs on the library's own connection and on one of nats-py"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("both_connections"):
        metafunc.parametrize("own_connection", [False, True], ids=["nats-py", "own"], indirect=True)


@pytest.fixture(autouse=True)
def own_connection(request: pytest.FixtureRequest) -> Generator[None]:
    """The kind of connection that `open_connection` gives."""
    connections.own = getattr(request, "param", True)
    yield
    connections.own = True
