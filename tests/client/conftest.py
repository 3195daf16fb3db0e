from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from postroom.client.http import Client
from postroom.client.locate import ServerAddress
from postroom.client.transport import Transport
from tests.client.standin import Standin


@pytest.fixture
def standin() -> Iterator[Standin]:
    server = Standin()
    yield server
    server.close()


class Pauses(list[float]):
    """Takes the place of sleeping; `then` runs at the first pause."""

    then: Callable[[], object] = staticmethod(lambda: None)

    def __call__(self, seconds: float) -> None:
        self.append(seconds)
        if len(self) == 1:
            self.then()


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
def client(standin: Standin, pauses: Pauses) -> Iterator[Client]:
    def here() -> ServerAddress:
        return ServerAddress(standin.url, os.getpid(), standin.token)

    with Client(Transport(here, sleep=pauses)) as client:
        yield client
