"""What a session asks its person before it uses a tool is asked in the post room, too, as an approval.

The client's hook waits meanwhile. The first answer counts: the client says nothing when its person has answered at the
terminal, so the next event of the session that cannot come before tells. Whatever goes wrong here is no answer: the
client asks at the terminal.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable

from postroom.connect.dialects import Said, Use, permission
from postroom.connect.mailbox import Kind
from postroom.connect.session import ENDED, Asked, Session
from postroom.errors import CallerError, PostroomError
from postroom.observe import get_logger
from postroom.observe.supervision import guarded
from postroom.protocol.limits import MAX_WAIT
from postroom_a2a.retry import RetryPolicy

log = get_logger(__name__)

SECONDS = 60.0
"""For which it is asked."""

MORE = 3.0
"""Seconds that the hook waits past that: the post room's clock alone says that it is over."""

AGAIN = RetryPolicy(base=0.5, cap=5.0)
"""The pauses before a call that failed is made again."""

AT_TERMINAL = "answered at the terminal"
CLOSED = "its client waits no longer"

_LATER = frozenset({Kind.START, Kind.PROMPT, Kind.BATCH, Kind.REQUEST, Kind.STOP, Kind.INTERRUPT})
"""What comes only when no tool of the same agent waits for a permission."""


def heard(session: Session, found: Said) -> None:
    """Something happened in the session: what it shows to be answered at the terminal is asked no further."""
    kind = found.event.kind if found.event is not None else None
    for asked in session.asked:
        if kind is Kind.END:
            asked.end(ENDED)
        elif found.agent == asked.agent and (
            kind in _LATER or (kind is Kind.AFTER_TOOL and found.use == asked.use)
        ):
            asked.end(AT_TERMINAL)


async def answer(session: Session, found: Said, closed: Awaitable[object]) -> str:
    """What the hook prints: a person's answer, or "" for none.

    Args:
        closed: done when the hook has ended.
    """
    if found.use is None:
        return ""
    asked = Asked(found.use, found.agent, asyncio.get_running_loop().create_future())
    session.asked.add(asked)
    request = secrets.token_hex(16)
    answered = asyncio.ensure_future(_answered(session, request, found.use, found.name))
    gone = asyncio.ensure_future(closed)
    try:
        await asyncio.wait({answered, asked.over, gone}, return_when=asyncio.FIRST_COMPLETED)
        if answered.done():
            return answered.result()
        answered.cancel()
        with guarded(f"what @{session.record.nick} asks"):
            why = asked.over.result() if asked.over.done() else CLOSED
            await session.client.withdraw_approval(session.record.uid, request, why)
        return ""
    finally:
        answered.cancel()
        gone.cancel()
        session.asked.discard(asked)


async def _answered(session: Session, request: str, use: Use, event: str) -> str:
    """Ask, and wait for the answer. It ends by the clock, also where the post room has no word of its end."""
    loop = asyncio.get_running_loop()
    end = loop.time() + SECONDS
    try:
        async with asyncio.timeout_at(end + MORE):
            for attempt in range(1, 1 << 20):
                try:
                    return await _ask(session, request, use, event, end - loop.time())
                except CallerError as error:
                    log.warning(
                        "what @%s asks is not asked elsewhere: %s", session.record.nick, error
                    )
                    return ""
                except PostroomError as error:
                    log.info("what @%s asks is asked again: %s", session.record.nick, error)
                    await asyncio.sleep(AGAIN.delay(attempt))
    except TimeoutError:
        pass
    return ""


async def _ask(session: Session, request: str, use: Use, event: str, seconds: float) -> str:
    uid, client = session.record.uid, session.client
    state = await client.ask_approval(uid, request, use.tool, use.input, seconds=max(seconds, 1.0))
    while state["state"] == "pending":
        state = await client.asked_approval(uid, request, wait=MAX_WAIT)
    answer = state["answer"]
    if state["state"] not in ("allowed", "denied") or answer is None or answer["by"] is None:
        return ""
    reason = answer["reason"] or f"denied by @{answer['by']['nick']}"
    return permission(event, allows=state["state"] == "allowed", reason=reason)
