"""A post room, a fake model and a desk, once for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.connect.clients.desk import Desk
from tests.e2e.conftest import PostRoom, running_room
from tests.fakes.model.server import FakeModel


@pytest.fixture(scope="module")
def room() -> Iterator[PostRoom]:
    with running_room() as room:
        yield room


@pytest.fixture(scope="module")
def model() -> Iterator[FakeModel]:
    with FakeModel() as model:
        yield model


@pytest.fixture(scope="module")
def desk(
    room: PostRoom, model: FakeModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Desk]:
    """With Claude Code connected."""
    made = Desk(room, tmp_path_factory.mktemp("home"), model, "claude")
    try:
        yield made
    finally:
        made.close()
