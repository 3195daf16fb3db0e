"""Claims, stored before a request is begun, so that no second process begins it (docs/binding.md).

A claim is one record of a KV bucket, made only if none exists. It holds the subject on which its owner answers about
the request. An unreachable owner is gone, and its request is lost.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import Enum

from postroom_a2a.binding.subjects import may_publish_to
from postroom_a2a.errors import (
    BusDisconnected,
    InvalidInput,
    LostUpdate,
    NoResponders,
    NotFound,
    PostroomError,
    RequestTimeout,
)
from postroom_a2a.nats.acks import Place
from postroom_a2a.nats.jetstream import LAST_SUBJECT_SEQUENCE, JetStream
from postroom_a2a.nats.port import NO_RESPONDERS, Frame, status_of

DONE_KEPT = 65_536
"""Done requests that a process remembers: after a kill, nats-server delivers the latest ones again."""

ASK_TIMEOUT = 2.0
"""Seconds for an owner's answer."""


class Claim(Enum):
    """The result of an attempt to claim a request."""

    OURS = "ours"
    """This process alone may begin it."""

    HELD = "held"
    """Another process works on it."""

    DONE = "done"
    """Another process has answered it."""

    SILENT = "silent"
    """Another process began it, is connected, and does not answer."""

    LOST = "lost"
    """Another process began it and is gone."""


_SAID = {b"held": Claim.HELD, b"done": Claim.DONE}


class Claims:
    """The claims of one server.

    Args:
        held: whether this process works on the request of a key.
        grace: seconds that an unreachable owner gets to return to a restarted NATS server.
    """

    def __init__(
        self, js: JetStream, bucket: str, held: Callable[[str], bool], *, grace: float
    ) -> None:
        self._js = js
        self._bucket = bucket
        self._held = held
        self._grace = grace
        self._done: OrderedDict[str, None] = OrderedDict()
        self._doubtful: OrderedDict[str, bool] = OrderedDict()
        self._address = ""

    async def open(self) -> None:
        """Begin to answer other processes about our claims."""
        await self._js.mailbox.open()
        self._address = self._js.mailbox.token(self._asked)
        self._answering: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Answer no more."""
        self._js.mailbox.forget(self._address)

    def done(self, place: Place) -> None:
        """Remember that the request was answered."""
        self._done[place.key] = None
        if len(self._done) > DONE_KEPT:
            self._done.popitem(last=False)

    def is_done(self, place: Place) -> bool:
        """Whether this process remembers the request as answered."""
        return place.key in self._done

    async def take(self, place: Place) -> Claim:
        """Claim a request; returns when the claim is stored, or another process's was found.

        Raises:
            NoResponders, Refused: the bucket takes nothing.
            BusDisconnected, RequestTimeout: JetStream does not answer; the request must not be begun.
        """
        subject = f"$KV.{self._bucket}.{place.key}"
        body = f'{{"owner":"{self._address}","at":{int(time.time() * 1000)}}}'.encode()
        try:
            await self._js.publish(subject, body, headers={LAST_SUBJECT_SEQUENCE: "0"})
        except LostUpdate:
            owner = await self._owner(subject)
            if owner is None:
                raise
            if owner != self._address:
                return await self._ask(owner, place)
            # An earlier claim of ours: answered and forgotten, unless we do not know whether it was stored.
            return Claim.OURS if self._doubtful.pop(place.key, False) else Claim.DONE
        except (RequestTimeout, BusDisconnected):
            # The claim may be stored all the same, now or later.
            self._doubtful[place.key] = True
            if len(self._doubtful) > DONE_KEPT:
                self._doubtful.popitem(last=False)
            owner = await self._owner(subject)
            if owner is None:
                raise
            if owner != self._address:
                return await self._ask(owner, place)
        self._doubtful.pop(place.key, None)
        return Claim.OURS

    async def look(self, place: Place) -> Claim | None:
        """The claim on a request that this call does not claim; None if no process did.

        Raises:
            PostroomError: JetStream does not answer.
        """
        owner = await self._owner(f"$KV.{self._bucket}.{place.key}")
        if owner is None:
            return None
        return Claim.DONE if owner == self._address else await self._ask(owner, place)

    async def _owner(self, subject: str) -> str | None:
        """The owner of the claim; None without a claim."""
        try:
            answer = await self._js.api(
                f"STREAM.MSG.GET.KV_{self._bucket}", {"last_by_subj": subject}
            )
        except NotFound:
            return None
        try:
            owner = json.loads(base64.b64decode(answer["message"]["data"]))["owner"]
        except (KeyError, TypeError, ValueError):
            return ""  # an unreadable record is a claim all the same
        return owner if isinstance(owner, str) else ""

    async def _ask(self, owner: str, place: Place) -> Claim:
        """The owner's answer about its claim."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._grace
        while True:
            try:
                frame = await self._js.mailbox.ask(owner, place.key.encode(), timeout=ASK_TIMEOUT)
            except RequestTimeout:
                return Claim.SILENT
            except InvalidInput:
                return Claim.LOST  # the claim names no usable subject
            if status_of(frame) != NO_RESPONDERS:
                return _SAID.get(frame.data, Claim.LOST)
            if loop.time() >= give_up:
                return Claim.LOST
            # After a restart of the NATS server its clients return one after the other.
            await asyncio.sleep(min(0.5, self._grace / 4))

    def _asked(self, frame: Frame) -> None:
        """Answer another process that found our claim."""
        key = frame.data.decode(errors="replace")
        said = b"held" if self._held(key) else b"done" if key in self._done else b""
        if frame.reply and may_publish_to(frame.reply):
            task = asyncio.get_running_loop().create_task(
                self._answer(frame.reply, said or b"lost")
            )
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _answer(self, reply: str, said: bytes) -> None:
        try:
            await self._js.mailbox.send(reply, said)
        except (PostroomError, NoResponders):
            return  # without an answer the other process asks again
