"""Requests and their answers: one subscription for all, told apart by a random token.

A reply subject is `_I.<own>.<answerer>.<token>`, so that even an answer names its sender; an answer counts only
on the subject that its question named.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from postroom.bus.nats.frames import NO_RESPONDERS, status_of
from postroom.bus.nats.link import Link, OnFrame, remaining
from postroom.errors import BusDisconnected, Conflict, PostroomError, Refused, RequestTimeout
from postroom.protocol import subjects
from postroom_a2a.nats.port import Frame
from postroom_a2a.nats.subscriptions import WireSubscription

MAX_WAITING = 10_000
"""Answers that may be awaited at a time."""


def new_token() -> str:
    """The unguessable last token of a reply subject: 12 random bytes."""
    return secrets.token_hex(12)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, and the number of the question it answers where it was asked again."""

    frame: Frame
    attempt: int

    @property
    def no_responders(self) -> bool:
        """Whether the server said that nobody listens."""
        return status_of(self.frame)[0] == NO_RESPONDERS


class Replies:
    """Asks, and hands each answer to the one who waits for it."""

    def __init__(self, link: Link, uid: str) -> None:
        self._link = link
        self._uid = uid
        self._waiting: dict[str, tuple[asyncio.Future[Answer], int, str]] = {}
        self._subscription: WireSubscription | None = None
        self._any = f"_I.{uid}.*"
        self._routes: dict[str, OnFrame] = {}

    async def open(self) -> None:
        """Begin to receive answers.

        Four tokens exactly: the inboxes of pull loops have five, so their frames do not arrive twice.
        """
        self._link.connection.watch_denials(self._denied)
        self._subscription = await self._link.listen(f"_I.{self._uid}.*.*", self._arrived)

    async def _arrived(self, frame: Frame) -> None:
        future, attempt, _ = self._waiting.get(frame.subject, (None, 0, ""))
        if future is None:
            await self._pass_on(frame)
        elif not future.done():
            future.set_result(Answer(frame, attempt))

    def _denied(self, error: PostroomError, subject: str) -> bool:
        waiting = {future for future, _, asked in self._waiting.values() if asked == subject}
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                self._link.counters.refused += 1
        return bool(waiting)

    async def _pass_on(self, frame: Frame) -> None:
        prefix = frame.subject.rpartition(".")[0]
        routes = [self._routes[each] for each in (prefix, self._any) if each in self._routes]
        if not routes:
            self._link.counters.ignored += 1
        for on_frame in routes:
            await on_frame(frame)

    def route(self, prefix: str, on_frame: OnFrame) -> None:
        """Give `on_frame` what arrives under `prefix` and answers no question of ours.

        Args:
            prefix: `_I.<own>.<answerer>`, or `_I.<own>.*`.
            on_frame: called for one frame after the other.

        Raises:
            Conflict: somebody has it.
        """
        if prefix in self._routes:
            raise Conflict(f"{prefix} is received already")
        self._routes[prefix] = on_frame

    def unroute(self, prefix: str) -> None:
        """End what `route` began."""
        self._routes.pop(prefix, None)

    async def ask(
        self,
        subject: str,
        payload: bytes,
        *,
        answerer: str,
        deadline: float,
        headers: Mapping[str, str] | None = None,
        repeat: bool = False,
    ) -> Answer:
        """Publish a question and wait for its answer, over reconnects too.

        Args:
            subject: of the question.
            payload: bytes.
            answerer: token that names who will answer.
            deadline: of the loop's clock.
            headers: of the question.
            repeat: ask again after a reconnect, since an answer may be lost with the connection; for questions
                that may be asked twice.

        Raises:
            Forbidden: denied.
            BusDisconnected: there was no connection to ask over.
            RequestTimeout: no answer before `deadline`.
            MessageTooLarge: not sent.
        """
        if len(self._waiting) >= MAX_WAITING:
            raise Refused("too many calls wait for answers of the bus")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        asked: list[str] = []
        try:
            while True:
                await self._ready(deadline, first=not asked)
                reply = subjects.reply(self._uid, answerer, new_token())
                asked.append(reply)
                self._waiting[reply] = answer, len(asked), subject
                turn = self._link.turn
                await self._link.send(subject, payload, reply=reply, headers=dict(headers or {}))
                if await self._answered(answer, turn, deadline, repeat=repeat):
                    return answer.result()
        finally:
            for reply in asked:
                del self._waiting[reply]
            if answer.done() and not answer.cancelled():
                answer.exception()  # seen, also where the deadline was faster

    async def _ready(self, deadline: float, *, first: bool) -> None:
        try:
            await self._link.ready(deadline)
        except BusDisconnected as error:
            if first or self._link.lost is not None:
                raise
            raise RequestTimeout("the connection broke before the answer came") from error

    async def _answered(
        self,
        answer: asyncio.Future[Answer],
        turn: asyncio.Future[None],
        deadline: float,
        *,
        repeat: bool,
    ) -> bool:
        """True with the answer, False when it is to be asked again."""
        while True:
            await asyncio.wait(
                {answer, turn}, timeout=remaining(deadline), return_when=asyncio.FIRST_COMPLETED
            )
            if answer.done():
                return True
            if not turn.done():
                raise RequestTimeout("the bus did not answer in time")
            if self._link.lost is not None:
                raise type(self._link.lost)(self._link.lost.message)
            if repeat:
                return False
            turn = self._link.turn
