"""State that the callers of one connection share, and callbacks before the connection ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from postroom_a2a.errors import PostroomError
from postroom_a2a.nats.natspy import AdaptedConnection
from postroom_a2a.nats.port import Connection

if TYPE_CHECKING:
    from postroom_a2a.durable.answer_reader import AnswerReader
    from postroom_a2a.nats.mailbox import Mailbox

_NAME = "_postroom_shared"
_ENDS = ("drain", "close", "_close")
"""Methods that end a connection; `async with` in nats-py calls the last."""


class Shared:
    """State that one connection's callers share.

    Attributes:
        mailboxes: by the prefix of their subjects.
        ending: called before the connection ends.
    """

    def __init__(self) -> None:
        self.mailboxes: dict[str, Mailbox] = {}
        self.responses: dict[str, AnswerReader] = {}
        self.ending: set[Callable[[], Awaitable[None]]] = set()

    def announced(self, end: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        """`end` of a connection, behind the callbacks in `ending`."""

        async def ending(*args: Any, **options: Any) -> None:
            while self.ending:
                with suppress(PostroomError):
                    await self.ending.pop()()
            await end(*args, **options)

        return ending


def shared(connection: Connection) -> Shared:
    """The shared state of `connection`'s callers, kept as its attribute.

    Callers of a connection without attributes share nothing. Those of an adapter share what its connection has.
    """
    if isinstance(connection, AdaptedConnection):
        connection = connection.connection
    kept: dict[str, Any] = getattr(connection, "__dict__", {})
    if _NAME not in kept:
        kept[_NAME] = together = Shared()
        for name in _ENDS:
            if (end := getattr(connection, name, None)) is not None:
                kept[name] = together.announced(end)
    return kept[_NAME]
