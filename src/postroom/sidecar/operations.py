"""What an agent can do, whichever way it asks: by a line on its standard output or over the local HTTP API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom.errors import InvalidInput, PostroomError
from postroom.protocol.text import one_line
from postroom.sidecar.adapters import (
    Action,
    Find,
    Malformed,
    Output,
    Post,
    Reply,
    Seen,
    Send,
    SetStatus,
)
from postroom.sidecar.directory import Directory
from postroom.sidecar.inbox import Inbox
from postroom.sidecar.keys import Key, own_key, random_key
from postroom.sidecar.outgoing import Draft, Outgoing
from postroom.sidecar.session import Session, log_output
from postroom.sidecar.status import Status


class Operations:
    """The actions of one worker's agent; also the host of its runs (`agent.AgentHost`)."""

    def __init__(
        self, inbox: Inbox, outgoing: Outgoing, directory: Directory, status: Status
    ) -> None:
        self._inbox = inbox
        self._outgoing = outgoing
        self._directory = directory
        self._status = status

    async def send(self, action: Send) -> str:
        """Send a message; returns its id once it is on disk.

        Raises:
            PostroomError: it was not accepted, or that is not known.
        """
        recipient = await self._directory.uid_of(action.to)
        key = self._key("send", action.key, recipient, action.text)
        draft = Draft(recipient, action.text, action.expects_reply, expires_in=action.expires_in)
        return await self._outgoing.message(draft, key)

    async def reply(self, action: Reply) -> str:
        """Answer a message and, once the answer is on disk, confirm it; returns the answer's id.

        Raises:
            NotFound: no such message was handed over.
            PostroomError: as `send`; the message stays unconfirmed.
        """
        sender = self._inbox.sender_of(action.to)
        held = self._inbox.find(action.to)
        if action.key:
            key = own_key(f"reply:{action.to}", action.key)
        else:
            key = held.derivation.key("reply", sender, action.text) if held else random_key()
        draft = Draft(
            sender,
            action.text,
            action.expects_reply,
            reply_to=action.to,
            context=held.context if held else "",
            expires_in=action.expires_in,
        )
        sent = await self._outgoing.message(draft, key)
        self._inbox.confirm(action.to)
        return sent

    async def post(self, action: Post) -> str:
        """Post to a feed; returns the id once it is on disk.

        Raises:
            PostroomError: as `send`.
        """
        project = action.project or self._outgoing.home
        key = self._key("post", action.key, f"#{project}", action.text)
        return await self._outgoing.post(project, action.text, key)

    def seen(self, action: Seen) -> None:
        """Confirm a message.

        Raises:
            NotFound: it was never handed over.
        """
        self._inbox.confirm(action.id)

    async def find(self, action: Find) -> list[dict[str, Any]]:
        """Agents with a card and, if it is given, the skill.

        Raises:
            PostroomError: the control plane did not answer.
        """
        return await self._directory.find(action.skill)

    def held(self) -> list[dict[str, Any]]:
        """Messages handed over and unconfirmed, as the agent was shown them."""
        return [
            {
                "id": message.id,
                "from": {
                    "uid": message.sender.uid,
                    "nick": message.sender.nick,
                    "kind": message.sender.kind,
                },
                "to": message.to,
                "text": message.text,
                "expects_reply": message.expects_reply,
                "reply_to": message.reply_to or None,
                "redelivered": message.redelivered,
                "sent_at": message.sent_at,
            }
            for message in (held.message for held in self._inbox.held)
        ]

    # ── host of the agent's runs ────────────────────────────────────────────────────────────────────

    async def act(self, session: Session, action: Action) -> None:
        """Carry out one action and tell the agent how it went."""
        try:
            answer = await self._perform(action)
        except PostroomError as error:
            answer = _error(action, error)
            if isinstance(action, Reply | Seen):
                # An agent that does not read its errors thinks that it is done with the message.
                await self._inbox.give_back(action.to if isinstance(action, Reply) else action.id)
        if answer is not None:
            session.tell(answer)

    async def gone(self) -> None:
        """The agent's run has ended."""
        await self._inbox.gone()

    async def _perform(self, action: Action) -> Mapping[str, Any] | None:
        match action:
            case Send():
                return _receipt(action, await self.send(action))
            case Reply():
                return _receipt(action, await self.reply(action))
            case Post():
                return _receipt(action, await self.post(action))
            case Seen():
                self.seen(action)
            case Find():
                agents = await self.find(action)
                return {"type": "agents", "ref": action.ref, "agents": agents}
            case SetStatus():
                self._status.said(action.state, action.detail)
            case Output():
                log_output("stdout", action.text)
            case Malformed():
                raise InvalidInput(action.detail)
        return None

    def _key(self, kind: str, given: str, recipient: str, text: str) -> Key:
        if given:
            return own_key(kind, given)
        current = self._inbox.current()
        return current.derivation.key(kind, recipient, text) if current else random_key()


def _receipt(action: Send | Reply | Post, sent: str) -> dict[str, Any]:
    ref = action.ref if action.ref is not None else action.key or None
    return {"type": "receipt", "ref": ref, "id": sent, "state": "accepted"}


def _error(action: Action, error: PostroomError) -> dict[str, Any]:
    ref = getattr(action, "ref", None)
    if ref is None:
        ref = getattr(action, "key", None) or None
    log_output("action refused", str(error))
    return {"type": "error", "ref": ref, "code": error.code, "detail": one_line(error.message, 500)}
