"""What each tool does: it asks the operations that it names, as its caller, and says the answers in a few lines.

Receipts: mail whose whole text a result has is `delivered` once the result is handed over (`Calls.handed`), and `seen`
when the next call of its reader begins: a client makes that one only after a model has had the result. What was handed
over is known from the messages themselves, so a restart in between loses nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, cast

from postroom.client.methods import AsyncMethods
from postroom.errors import Forbidden, InvalidInput, NotFound
from postroom.mcp import said
from postroom.mcp.tools import HOW, LONGEST, TOOLS, checked
from postroom.protocol.frame import framed
from postroom.protocol.shapes import Mail, Task
from postroom_a2a.task_state import TaskState
from postroom_a2a.text import one_line

INBOX_PAGE = 50

MOST = 7000
"""Characters of one look at the inbox."""

Handed = Callable[[], Awaitable[Sequence[str]]]
"""Gives ids of messages."""

Waits = Callable[[], AbstractContextManager[None]]
"""While it is open, the call ends with its caller."""


class Transport(Protocol):
    """Asks operations in the name of one caller, as `client.transport.AsyncTransport` does."""

    async def call(
        self, method: str, path: str, *, json: object = None, params: Any = None, **how: Any
    ) -> Any:
        """The JSON of the answer. Raises PostroomError."""


class Room(AsyncMethods):
    """The operations, asked over a transport."""

    def __init__(self, transport: Transport) -> None:
        self.transport = cast("Any", transport)


class Said(NamedTuple):
    """The result of a tool.

    Attributes:
        handed: ids of messages to the caller that are in it from beginning to end.
    """

    text: str
    handed: tuple[str, ...] = ()


class Unknown(NotFound):
    """There is no such tool."""


class Calls:
    """The tools, for one caller.

    Args:
        room: asks the operations in the caller's name.
        owner: uid of the person whom the caller belongs to; "" for whom the post room does.
        handed: tells what results have held that the caller has not seen; None for a caller that gives receipts itself.
    """

    def __init__(
        self, room: Room, waits: Waits, handed: Handed | None = None, *, owner: str = ""
    ) -> None:
        self._room = room
        self._waits = waits
        self._handed = handed
        self._owner = owner

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Said:
        """Do what the tool `name` does.

        Raises:
            Unknown: there is none with that name.
            PostroomError: it was refused, as the operation would be.
        """
        tool = TOOLS.get(name)
        if tool is None:
            raise Unknown(f"there is no tool {one_line(name, 60)!r}")
        values = checked(tool, arguments)
        if self._handed is not None and (read := await self._handed()):
            await self._room.acknowledge(read, "seen")
        does: Callable[..., Awaitable[Said]] = getattr(self, f"_{name}")
        return await does(**values)

    async def handed(self, ids: Sequence[str]) -> None:
        """The result with these messages has left for the caller."""
        if ids and self._handed is not None:
            await self._room.acknowledge(ids, "delivered", how=HOW)

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────

    async def _a2a_whoami(self) -> Said:
        return Said(said.me(await self._room.me()))

    async def _a2a_check_inbox(self, after: int = 0) -> Said:
        found = await self._room.inbox(after=after, limit=INBOX_PAGE)
        if not found:
            return Said("No unread messages." if not after else "No further unread messages.")
        me = found[0]["to"]["nick"]
        again = [mail["id"] for mail in found if mail["state"] == "delivered"]
        shown = framed(found, to=me, owner=self._owner, again=again, most=MOST)
        last = found[len(shown.whole) + len(shown.cut) - 1]["seq"]
        text = shown.text
        if shown.left or len(found) == INBOX_PAGE:
            text += f"\n\nThe next page: a2a_check_inbox with after {last}."
        return Said(text, shown.whole)

    async def _a2a_read_message(self, message: str, page: int = 1) -> Said:
        mail = await self._room.message(message)
        text, last = said.page_of(mail, page, self._owner)
        mine = mail["to"]["uid"] == (await self._room.me())["uid"]
        return Said(text, (mail["id"],) if last and mine else ())

    async def _a2a_send_message(self, **fields: Any) -> Said:
        return Said(said.accepted(await self._room.send(**fields)))

    async def _a2a_reply(self, message: str, text: str, key: str = "") -> Said:
        asked = await self._room.message(message)
        if (about := asked.get("about")) and await self._is_asked(about):
            view = await self._room.answer_task(about, text)
            return Said(f"Accepted: the answer for task {view['id']}.")
        to = asked["from"]["uid"]
        sent = await self._room.send(to, text, key=key, reply_to=asked["id"], expects_reply=False)
        return Said(said.accepted(sent))

    async def _is_asked(self, task: str) -> bool:
        """Whether a task waits for the answer of the caller, who gave it."""
        try:
            view = await self._room.task(task)
        except (NotFound, Forbidden):
            return False
        mine = view["requester"]["uid"] == (await self._room.me())["uid"]
        return mine and TaskState(view["state"]).interrupted

    async def _a2a_ask(self, to: str, text: str, key: str = "", wait: float = LONGEST) -> Said:
        sent = await self._room.send(to, text, key=key)
        return await self._answer(sent, wait)

    async def _answer(self, sent: Mail, wait: float) -> Said:
        with self._waits():
            mail = await self._room.message(sent["id"], wait="answered", timeout=wait)
        answer = mail["answer"]
        if answer is not None:
            shown = framed([answer], to=answer["to"]["nick"], owner=self._owner, most=MOST)
            return Said(shown.text, shown.whole)
        if mail["state"] == "dead":
            return Said(said.status(mail))
        return Said(f"{said.accepted(mail)} No answer yet; it will come as mail.")

    async def _a2a_message_status(self, message: str) -> Said:
        return Said(said.status(await self._room.message(message)))

    # ── agents ──────────────────────────────────────────────────────────────────────────────────────────

    async def _a2a_get_agent_capabilities(self, agent: str) -> Said:
        return Said(said.capabilities(await self._room.agent(agent)))

    async def _a2a_set_capabilities(self, nick: str = "", **card: Any) -> Said:
        me = await self._room.me()
        if nick:
            await self._room.rename_agent(me["uid"], nick)
        if card:
            await self._room.set_card(me["uid"], card)
        return Said(said.capabilities(await self._room.agent(me["uid"])))

    async def _a2a_register(self, nick: str) -> Said:
        return Said(said.code(await self._room.offer_key(nick=nick), f"the new agent @{nick}"))

    async def _a2a_rotate_api_key(self) -> Said:
        return Said(said.code(await self._room.offer_key(), "your new key"))

    async def _a2a_authorize(self, agent: str, **fields: Any) -> Said:
        made = await self._room.allow(agent, **fields)
        return Said(said.asked(made) or said.grants([made]))

    async def _a2a_list_authorizations(self) -> Said:
        return Said(said.grants(await self._room.grants(), await self._room.grant_requests()))

    async def _a2a_revoke_authorization(self, grant: str) -> Said:
        return Said(said.grants([await self._room.revoke_grant(grant)]))

    async def _a2a_set_webhook(self, **fields: Any) -> Said:
        made = await self._room.add_webhook(**fields)
        return Said(said.asked(made) or said.webhook(made))

    async def _a2a_list_agents(self, **fields: Any) -> Said:
        return Said(said.agents(await self._room.agents(**fields)))

    async def _a2a_ask_human(
        self, text: str, key: str = "", task: str = "", wait: float = LONGEST
    ) -> Said:
        if task:
            return await self._ask_requester(task, text, wait)
        people = [] if self._owner else await self._room.people()
        to = self._owner or next(one["uid"] for one in people if one["owner"])
        return await self._answer(await self._room.send(to, text, key=key), wait)

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────────

    async def _ask_requester(self, task: str, text: str, wait: float) -> Said:
        asked = await self._room.report_status(task, "input-required", text=text)
        with self._waits():
            view = await self._room.task(
                asked["id"], wait="changed", after=asked["seq"], timeout=wait
            )
        if view.get("timed_out"):
            return Said(f"No answer yet: a2a_get_task {view['id']} shows it when it is there.")
        return await self._shown(view)

    async def _shown(self, view: Task) -> Said:
        return Said(said.task(view, await self._room.task_messages(view["id"])))

    async def _a2a_delegate_task(self, **fields: Any) -> Said:
        if not (fields.get("to") or fields.get("skill")):
            raise InvalidInput("to or skill has to say who is to do it")
        made = await self._room.delegate(**fields)
        return Said(f"Accepted: task {made['id']} for @{one_line(made['worker']['nick'], 64)}.")

    async def _a2a_get_task(self, task: str, wait: float = 0.0) -> Said:
        with self._waits():
            view = await self._room.task(task, wait="settled" if wait else "", timeout=wait or None)
        return await self._shown(view)

    async def _a2a_cancel_task(self, task: str, reason: str = "") -> Said:
        view = await self._room.cancel_task(task, reason=reason)
        return Said(said.task(view))

    async def _a2a_report_task(
        self, task: str, state: str, text: str = "", artifact: str = ""
    ) -> Said:
        if artifact:
            view = await self._room.report_artifact(task, name=artifact, text=text)
            text = ""
            if state == "working":
                return Said(f"Task {view['id']} has the result {one_line(artifact, 80)}.")
        view = await self._room.report_status(task, state, text=text)
        return Said(f"Task {view['id']}: {one_line(view['state'], 40)}.")
