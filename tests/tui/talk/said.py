"""What the tests of feeds and conversations use: a worker that writes to the person, and what is shown."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from textual.pilot import Pilot

from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope
from postroom.protocol.receipts import Receipt, State
from postroom.tui.app import PostroomApp
from postroom.tui.news import Chosen, Target
from postroom.tui.talk.pane import Talk
from postroom_a2a.messages import text_message
from tests.control.doing import Doing
from tests.control.taskroom import SECONDS, TaskRoom
from tests.tui.conftest import app_on, screen_text, until, working


@dataclass
class Writer:
    """The worker `coder`, which writes to the person."""

    doing: Doing

    @property
    def room(self) -> TaskRoom:
        return self.doing.room

    @property
    def target(self) -> Target:
        return Target("coder", self.doing.uid)

    async def write(self, text: str, **fields: Any) -> str:
        """A message to the person, folded on return; its id."""
        message_id = await self._store(text, fields)
        await self.room.folded("INBOX")
        return message_id

    async def write_all(self, texts: Iterable[str], **fields: Any) -> None:
        """The same, one message for each."""
        for text in texts:
            await self._store(text, dict(fields))
        await self.room.folded("INBOX")

    async def write_to(self, uid: str, text: str) -> None:
        """A message to another one."""
        await self._store(text, {}, uid)
        await self.room.folded("INBOX")

    async def _store(self, text: str, fields: dict[str, Any], to: str = "") -> str:
        message_id, me = secrets.token_hex(16), to or self.room.owner.uid
        at = fields.pop("at", time.time())
        envelope = Envelope(message_id, me, text_message(message_id, text), at, **fields)
        subject = subjects.inbox(me, self.doing.uid)
        await self.doing.hand.bus.publish(subject, envelope.encode(), id=message_id)
        return message_id

    async def receipt(self, message_id: str, state: State) -> None:
        """What the person has sent is `state` now."""
        me = self.room.owner.uid
        report = Receipt(message_id, self.doing.uid, state, time.time())
        await self.doing.hand.bus.publish(subjects.receipts(me, self.doing.uid), report.encode())

    async def post(self, project: str, text: str) -> str:
        """A post of the person, from elsewhere; its id."""
        answer = await self.room.api.post(f"/v1/projects/{project}/posts", json={"text": text})
        assert answer.status_code == 201, answer.text
        return answer.json()["id"]

    async def mails(self) -> list[dict[str, Any]]:
        """The conversation, as the post room has it."""
        return (await self.room.api.get("/v1/chats/coder/messages")).json()["messages"]

    async def state(self, message_id: str) -> str:
        """The state of a message."""
        return (await self.room.api.get(f"/v1/messages/{message_id}")).json()["state"]

    async def seen(self, message_id: str) -> None:
        """Wait until a message is seen."""
        wait = {"wait": "seen", "timeout": SECONDS}
        answer = await self.room.api.get(f"/v1/messages/{message_id}", params=wait)
        assert answer.json()["state"] == "seen"


@dataclass
class Looking:
    """The screen, with its middle shown."""

    pilot: Pilot[int]

    @property
    def app(self) -> PostroomApp:
        return cast("PostroomApp", self.pilot.app)

    @property
    def talk(self) -> Talk:
        return self.app.query_one(Talk)

    @property
    def text(self) -> str:
        return screen_text(self.app)

    @property
    def rows(self) -> list[str]:
        """All lines that are kept, seen or not."""
        log = self.talk.log_of
        return [] if log is None else [row.text for row in log._rows.rows]

    async def has(self, words: str) -> None:
        """Wait until they are among the lines, seen or not."""
        await until(self.pilot, lambda: any(words in row for row in self.rows))

    async def shows(self, *words: str) -> str:
        """Wait until all of `words` are on the screen, in lines of their own or not."""
        await until(self.pilot, lambda: _all_in(words, self.text))
        return self.text

    async def hides(self, *words: str) -> str:
        """Wait until none of them is."""
        await until(self.pilot, lambda: not _any_in(words, self.text))
        return self.text

    async def look(self, target: Target) -> None:
        """Choose it, and wait until it is read."""
        await until(self.pilot, lambda: self.talk.target)  # the first one is chosen by itself
        self.app.post_message(Chosen(target))
        self.app.look("talk")
        await until(self.pilot, lambda: self.talk.ready and self.talk.target == target)


@asynccontextmanager
async def looking(
    shared: TaskRoom, folder: Path, project: str = "", size: tuple[int, int] = (80, 24)
) -> AsyncGenerator[tuple[Writer, Looking]]:
    """A worker that writes, and the screen on it."""
    async with working(shared, folder, project) as coder, app_on(coder, size=size) as pilot:
        yield Writer(coder), Looking(pilot)


def _all_in(words: Iterable[str], text: str) -> bool:
    return all(word in text for word in words)


def _any_in(words: Iterable[str], text: str) -> bool:
    return any(word in text for word in words)
