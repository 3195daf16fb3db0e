from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.standin import Standin


@pytest.fixture
def standin() -> Iterator[Standin]:
    server = Standin()
    yield server
    server.close()
