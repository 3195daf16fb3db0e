"""What a person may type into a chat to answer what a worker asks: `/approve`, `/deny`, `/all`, `/answer`.

Only in a terminal: from a pipe each line is a message, so that a program that writes there cannot approve anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.output import terminal_width
from postroom.cli.root import report
from postroom.client.answering import Answering
from postroom.errors import InvalidInput, NotFound
from postroom.lines.rows import painted
from postroom.view.happenings import hint_of
from postroom.view.tasks import short

if TYPE_CHECKING:
    from postroom.client.answering import Ask
    from postroom.client.http import Client

Say = Callable[[str], None]


class Commands:
    """Carries out the commands of one chat."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._answering = Answering(client, channel="chat", report=report)
        self._offered: dict[str, str] = {}

    def ask_by(self, ask: Ask) -> None:
        """Have the person asked so for their PIN."""
        self._answering.ask = ask

    def offer(self, record: Any, say: Say) -> None:
        """Show how to answer what is asked; of an approval also what exactly is to be allowed."""
        if not (hint := hint_of(record)):
            return
        if record["approval"]:
            try:
                asked = self._client.approval(record["approval"], worker=record["worker"]["uid"])
            except NotFound:
                return
            if asked["state"] != "pending":
                return
            self._offered[asked["id"]] = asked["worker"]["uid"]
            for row in self._answering.rows(asked):
                for line in painted(row, terminal_width()):
                    say(line)
        say(click.style(hint, dim=True))

    def done(self, text: str, say: Say) -> bool:
        """Carry out `text` if it is a command; raises PostroomError."""
        word, _, rest = text.strip().partition(" ")
        match word:
            case "/approve" | "/deny":
                ref, _, reason = rest.strip().partition(" ")
                if not ref:
                    raise InvalidInput(f"{word} needs the id of what is asked")
                asked = self._client.approval(ref, worker=self._worker_of(ref))
                decision = "allowed" if word == "/approve" else "denied"
                say(f"    {self._answering.decide(asked, decision, reason.strip())}")
            case "/all":
                asked = self._client.approval(rest.strip(), worker=self._worker_of(rest.strip()))
                say(f"    {self._answering.free(asked['worker']['uid'], asked['task'])}")
            case "/answer":
                ref, _, answer = rest.strip().partition(" ")
                if not ref or not answer.strip():
                    raise InvalidInput("/answer needs the id of a task and the text")
                task = self._client.answer_task(ref, answer.strip())
                say(f"    {short(task['id'])} answered")
            case _:
                return False
        return True

    def _worker_of(self, ref: str) -> str:
        """The worker that asked it here, "" for what was not shown here."""
        found = {uid for request, uid in self._offered.items() if request.startswith(ref)}
        return found.pop() if len(found) == 1 else ""
