"""The targets of a chat: a project, with or without what happens beside its posts, or one agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from postroom.client.calls import Part
from postroom.client.http import Client
from postroom.client.stream import EventStream
from postroom.errors import Forbidden, NotFound
from postroom.protocol.shapes import Mail


class ChatTarget(Protocol):
    """A project or an agent to chat with."""

    def history(self, limit: int) -> Sequence[Any]:
        """The newest `limit` posts or messages, oldest first."""
        ...

    def follow(self, after: int) -> EventStream:
        """Events after the stream sequence `after`."""
        ...

    def send(self, text: str, parts: Sequence[Part] = ()) -> Any:
        """Send a line or a file; returns the post or message when it is on disk."""
        ...

    def heard(self, mail: Mail) -> None:
        """Remember a message to the person that was shown."""
        ...


class ProjectTarget:
    """A project's feed."""

    def __init__(self, client: Client, project: str) -> None:
        self._client = client
        self._project = project

    def history(self, limit: int) -> Sequence[Any]:
        """The newest posts."""
        return self._client.posts(self._project, limit=limit)

    def follow(self, after: int) -> EventStream:
        """New posts."""
        return self._client.follow_project(self._project, after=after)

    def send(self, text: str, parts: Sequence[Part] = ()) -> Any:
        """Publish a post."""
        return self._client.post(self._project, text, parts=parts)

    def heard(self, mail: Mail) -> None:
        """No effect: a post asks nobody a question."""


class ActivityTarget(ProjectTarget):
    """A project's feed, and what happens in the project beside it; the posts alone for a key that may not see more."""

    def __init__(self, client: Client, project: str) -> None:
        super().__init__(client, project)
        self._after = ""

    def history(self, limit: int) -> Sequence[Any]:
        """The newest posts and happenings."""
        try:
            found = self._client.project_events(self._project, limit=limit)
        except (Forbidden, NotFound):  # or the post room is of an earlier version
            return super().history(limit)
        self._after = found["after"]
        return [event["post"] or event["activity"] for event in found["events"]]

    def follow(self, after: int) -> EventStream:
        """What comes after the history."""
        if not self._after:
            return super().follow(after)
        return self._client.follow_project_events(self._project, after=self._after)


class AgentTarget:
    """One agent. A line after a question of the agent is sent as its answer."""

    def __init__(self, client: Client, ref: str) -> None:
        self._client = client
        self._ref = ref
        self._question = ""

    def history(self, limit: int) -> Sequence[Any]:
        """The newest messages, of both sides."""
        return self._client.chat(self._ref, limit=limit)

    def follow(self, after: int) -> EventStream:
        """New messages of both sides, and receipts."""
        return self._client.follow_chat(self._ref, after=after)

    def send(self, text: str, parts: Sequence[Part] = ()) -> Any:
        """Send a message, or answer the open question."""
        question, self._question = self._question, ""
        return self._client.send(
            self._ref, text, parts=parts, expects_reply=not question, reply_to=question
        )

    def heard(self, mail: Mail) -> None:
        """A question is open until it is answered."""
        if mail["expects_reply"] and mail["state"] not in {"answered", "dead"}:
            self._question = mail["id"]
