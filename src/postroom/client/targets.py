"""What a person talks with: a project, with or without what happens beside its posts, or one agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from postroom.client.calls import Part
from postroom.client.http import AsyncClient, Away
from postroom.client.stream import AsyncEventStream
from postroom.errors import Forbidden, NotFound
from postroom.protocol.shapes import Mail


class ChatTarget:
    """A project or an agent to chat with, which is read back page by page (`_page`). One call at a time."""

    _first: int | None = None

    @property
    def has_earlier(self) -> bool:
        """Whether there may be something before what was read last."""
        return self._first is not None

    async def history(self, limit: int, before: int | None = None) -> Sequence[Any]:
        """The newest `limit` posts or messages, oldest first; with `before` those below that sequence."""
        found = await self._page(limit, before)
        self._first = found[0]["seq"] if len(found) >= limit else None
        return found

    async def earlier(self, limit: int) -> Sequence[Any]:
        """The `limit` before those that were read last, none at the beginning."""
        return await self.history(limit, self._first) if self._first else ()

    def follow(self, after: int | str, away: Away | None = None) -> AsyncEventStream:
        """Events after the stream sequence `after`, or past the event of that id.

        With `away` the stream waits for a post room that has gone, and calls it with True then, with False once it is
        back; else that is an error.
        """
        raise NotImplementedError

    async def send(self, text: str, parts: Sequence[Part] = (), *, key: str = "") -> Any:
        """Send a line or a file; returns the post or message when it is on disk. One `key` gives one."""
        raise NotImplementedError

    def heard(self, mail: Mail) -> None:
        """Remember a message to the person that was shown: a post asks nobody a question."""

    async def _page(self, limit: int, before: int | None) -> Sequence[Any]:
        raise NotImplementedError


class ProjectTarget(ChatTarget):
    """A project's feed."""

    def __init__(self, client: AsyncClient, project: str) -> None:
        self._client = client
        self._project = project

    async def _page(self, limit: int, before: int | None) -> Sequence[Any]:
        return await self._client.posts(self._project, limit=limit, before=before)

    def follow(self, after: int | str, away: Away | None = None) -> AsyncEventStream:
        """New posts."""
        return self._client.follow_project(self._project, after=int(after), **_kept_up(away))

    async def send(self, text: str, parts: Sequence[Part] = (), *, key: str = "") -> Any:
        """Publish a post."""
        return await self._client.post(self._project, text, parts=parts, key=key)


class ActivityTarget(ProjectTarget):
    """A project's feed, and what happens in the project beside it; the posts alone for a key that may not see more."""

    def __init__(self, client: AsyncClient, project: str) -> None:
        super().__init__(client, project)
        self._after = ""
        self._before: str | None = None

    @property
    def has_earlier(self) -> bool:
        """Whether there is something before what was read last."""
        return self._before is not None if self._after else super().has_earlier

    async def history(self, limit: int, before: int | None = None) -> Sequence[Any]:
        """The newest posts and happenings; with `before` posts alone."""
        if before is not None:
            return await super().history(limit, before)
        try:
            return await self._read(limit, "")
        except (Forbidden, NotFound):
            return await super().history(limit)

    async def earlier(self, limit: int) -> Sequence[Any]:
        """The posts and happenings before them."""
        if not self._after:
            return await super().earlier(limit)
        found: Sequence[Any] = ()
        while self._before and not found:  # a page may have nothing that is shown
            found = await self._read(limit, self._before)
        return found

    def follow(self, after: int | str, away: Away | None = None) -> AsyncEventStream:
        """What comes after the history."""
        if not self._after:
            return super().follow(after, away)
        cursor = after if isinstance(after, str) else self._after
        return self._client.follow_project_events(self._project, after=cursor, **_kept_up(away))

    async def _read(self, limit: int, before: str) -> Sequence[Any]:
        found = await self._client.project_events(self._project, limit=limit, before=before)
        self._after = self._after or found["after"]
        self._before = found["next"]
        return [event["post"] or event["activity"] for event in found["events"]]


class AgentTarget(ChatTarget):
    """One agent. A line after a question of the agent is sent as its answer.

    Attributes:
        question: id of the message that the next line answers, "" for none.
    """

    def __init__(self, client: AsyncClient, ref: str) -> None:
        self._client = client
        self._ref = ref
        self.question = ""

    async def _page(self, limit: int, before: int | None) -> Sequence[Any]:
        return await self._client.chat(self._ref, limit=limit, before=before)

    def follow(self, after: int | str, away: Away | None = None) -> AsyncEventStream:
        """New messages of both sides, and receipts."""
        return self._client.follow_chat(self._ref, after=int(after), **_kept_up(away))

    async def send(
        self,
        text: str,
        parts: Sequence[Part] = (),
        *,
        key: str = "",
        answers: str | None = None,
    ) -> Any:
        """Send a message, or answer `answers`: None for the open question, "" for none."""
        question = self.question if answers is None else answers
        mail = await self._client.send(
            self._ref, text, parts=parts, expects_reply=not question, reply_to=question, key=key
        )
        if self.question == question:  # else it has asked another meanwhile
            self.question = ""
        return mail

    def heard(self, mail: Mail) -> None:
        """A question is open until it is answered."""
        if mail["expects_reply"] and mail["state"] not in {"answered", "dead"}:
            self.question = mail["id"]


def _kept_up(away: Away | None) -> dict[str, Any]:
    return {} if away is None else {"for_ever": True, "away": away}
