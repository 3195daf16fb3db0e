"""JetStream of a server of its own, for the tests of this folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
from nats.aio.client import Client

from library.nats.connections import open_connection
from library.servers import open_server
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.mailbox import Mailbox


@asynccontextmanager
async def jetstream(folder: Path) -> AsyncGenerator[tuple[JetStream, Client]]:
    """JetStream and the connection that it is seen through."""
    async with open_server(folder) as url:
        own, connection = await open_connection(url), await nats.connect(url)
        try:
            yield JetStream(Mailbox(own)), connection
        finally:
            await own.close()
            await connection.close()
