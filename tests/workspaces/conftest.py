from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import PostRoom, running_room
from tests.workspaces.bench import QUIET, Bench


@pytest.fixture(scope="package")
def room() -> Iterator[PostRoom]:
    with running_room(**QUIET) as room:
        yield room


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    for name, value in QUIET.items():
        monkeypatch.setenv(name, value)
    return Bench(tmp_path)
