"""Answers of a person to what an agent asks, given where it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from postroom.lines.events import request_rows
from postroom.lines.tasks import short
from postroom.lines.words import address
from postroom.protocol.approvals import Decision
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.cli.approvals.deciding import Ask
    from postroom.client.http import Client
    from postroom.lines.rows import Row
    from postroom.protocol.shapes import Approval


class Answering:
    """Shows approvals and answers them over one channel.

    Attributes:
        ask: has the person type their PIN, when it is demanded: each time, since a session may last for days; None
            where nobody is there.
    """

    def __init__(self, client: Client, *, channel: str, ask: Ask | None = None) -> None:
        self._client = client
        self._channel = channel
        self.ask = ask

    def rows(self, asked: Approval) -> Sequence[Row]:
        """What is asked, whole."""
        return request_rows(address(asked["worker"]), asked)

    def decide(
        self,
        asked: Approval,
        decision: str,
        reason: str = "",
        given: Mapping[str, Any] | None = None,
    ) -> str:
        """Answer; returns what is to be said of it.

        Raises:
            Conflict: it is settled; the message says by whom.
            PinRequired: a PIN is demanded, and nobody types one.
            PinWrong, PinPaused: it is not this one.
        """
        done = self.settle(asked["worker"]["uid"], asked["id"], decision, reason, given)
        return f"{one_line(done['state'])} {short(asked['id'])}"

    def settle(
        self,
        worker: str,
        request: str,
        decision: str,
        reason: str = "",
        given: Mapping[str, Any] | None = None,
    ) -> Approval:
        """As `decide`, for what is known by its id."""

        def send(pin: str) -> Approval:
            return self._client.control(
                worker,
                request,
                decision,
                channel=self._channel,
                reason=reason,
                input=given,
                pin=pin,
            )

        if self.ask is None:
            return send("")
        from postroom.cli.approvals.deciding import Pin

        return Pin(ask=self.ask, remedy=f"postroom approve {short(request)}").used(send)

    def say(self, asked: Approval, text: str) -> str:
        """Answer a question of an agent with words."""
        task = asked["task"]
        if task:
            self._client.answer_task(task, text)
            return f"answered {short(task)}"
        return self.decide(asked, Decision.EDITED.value, given={"text": text})
