"""Connections to the bus of a running post room, and the plain stream that floors are measured on."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import nats
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    DiscardPolicy,
    StorageType,
    StreamConfig,
)

from benchmarks.room import PostRoom
from postroom.bus.nats import NatsBus
from postroom.identity.jwt import Credential
from postroom.identity.trust import Trust
from postroom.protocol.streams import DUPLICATE_WINDOW
from postroom.settings import Settings

PLAIN = "plain"
"""Stream of the floor; nobody follows it."""

TIMEOUT = 30.0


class Buses:
    """Opens connections to one running post room; `stack` closes them."""

    def __init__(self, stack: AsyncExitStack, room: PostRoom) -> None:
        self._stack = stack
        self._url = room.server["nats_url"]
        self._trust = Trust.load_or_create(Settings(state=room.state).keys)

    async def core(self) -> NatsClient:
        """A plain client with the control plane's credential."""
        return await connected(self._url, self._trust, self._stack)

    async def agent(self, uid: str) -> NatsBus:
        """Postroom's bus as agent `uid`, whose worker does not run."""
        credential = self._trust.mint_agent(uid, (), lifetime=3600, now=time.time())
        bus = await NatsBus.connect(
            self._url, uid=uid, jwt=lambda: credential.jwt, sign=credential.sign
        )
        self._stack.push_async_callback(bus.close)
        return bus


async def connected(url: str, trust: Trust, stack: AsyncExitStack) -> NatsClient:
    """A plain client with the control plane's credential; `stack` closes it."""
    client = await nats.connect(url, **_options(trust.core_credential()))
    stack.push_async_callback(client.close)
    return client


def plain_stream(name: str = PLAIN) -> StreamConfig:
    """A stream with the settings of INBOX that stores what is published on the subject `name`."""
    return StreamConfig(
        name=name,
        subjects=[name],
        storage=StorageType.FILE,
        discard=DiscardPolicy.NEW,
        num_replicas=1,
        max_msg_size=1024 * 1024,
        duplicate_window=DUPLICATE_WINDOW,
    )


async def follow(
    stream: JetStreamContext, name: str, subject: str, heard: Callable[[Msg], None]
) -> JetStreamContext.PushSubscription:
    """Hear of each record that is stored in stream `name` on `subject` from now on.

    A consumer, since a subscription to the subject itself hears of a record before it is on disk.
    """

    async def deliver(record: Msg) -> None:
        heard(record)

    return await stream.subscribe(
        subject,
        stream=name,
        cb=deliver,
        manual_ack=True,
        config=ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.NEW),
    )


async def folded(stream: JetStreamContext, names: Sequence[str]) -> None:
    """Wait until the post office has folded what is in the streams `names`, so that the next turn does not pay for it.

    Raises:
        TimeoutError: not within `TIMEOUT` seconds.
    """
    async with asyncio.timeout(TIMEOUT):
        for name in names:
            while True:
                # The fold follows by push, and folds at once what it has got.
                readers = await stream.consumers_info(name)
                if not any(
                    reader.num_pending for reader in readers if reader.config.deliver_subject
                ):
                    break
                await asyncio.sleep(0.02)  # the server has no event for it


def _options(credential: Credential) -> dict[str, Any]:
    return {
        "user_jwt_cb": lambda: bytearray(credential.jwt, "ascii"),
        "signature_cb": lambda nonce: base64.b64encode(credential.sign(nonce.encode())),
        "allow_reconnect": False,
    }
