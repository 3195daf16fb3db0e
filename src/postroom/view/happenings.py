"""What happens in the whole post room, and in a project beside its posts, a line each.

Agents wrote the texts, so all of it is made harmless here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from postroom.view.approvals import decider, what
from postroom.view.tasks import TaskUpdates, short
from postroom.view.words import address, gist
from postroom.view.workers import FAILED
from postroom_a2a.text import one_line
from postroom_a2a.times import format_time

if TYPE_CHECKING:
    from postroom.protocol.shapes import Activity

SHOWN_STATES = {
    **FAILED,
    "starting": "starts",
    "stopped": "is stopped",
    "removed": "is removed",
}
"""States of a worker that are shown; its tasks show its work."""

TOLD_OTHERWISE = frozenset({"approval"})
"""Kinds of alerts about what has a line of its own."""

TIMES = ("sent_at", "created_at")
"""Fields of a record that hold its time, where it is not `at`."""

ATTEMPTS_KEPT = 1000
"""Tasks whose attempt is remembered, to recognise the begin of another one."""


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """An event that a person sees: when, whom it is about, what happened in a few words, and the text.

    Attributes:
        at: RFC 3339.
        state: that the words tell of; `asks` where something waits for the person, `failed` where it went wrong.
        who: uid of the agent that it is about, "" for none.
    """

    at: str
    about: str
    label: str
    state: str
    text: str
    who: str = ""


class ChangeLines:
    """Makes a `SeenEvent` of each event that a person need see."""

    def __init__(self) -> None:
        self._updates: dict[str, TaskUpdates] = {}

    def happening(self, kind: str, data: dict[str, Any], now: float) -> SeenEvent | None:
        """What a person sees of an event of the stream of everything, None for one that they need not see.

        Args:
            now: seconds since the epoch.
        """
        if kind == "approval":
            return _approval(data, now)
        about, label, state, text = self._parts(kind, data)
        if not about:
            return None
        at = next((data[key] for key in ("at", *TIMES) if data.get(key)), format_time(now))
        return SeenEvent(at, about, label, state, one_line(text), _uid(kind, data))

    def _parts(self, kind: str, data: dict[str, Any]) -> tuple[str, str, str, str]:
        """The subject, a few words about the event, the state that they tell of, and the text."""
        match kind:
            case "task":
                given = f"task {short(data['id'])} from {address(data['requester'])}"
                return address(data["worker"]), given, "", data["text"]
            case "update":
                return self._update(data)
            case "mail":
                return address(data["from"]), "to you", "asks", gist(data)
            case "post":
                return f"#{one_line(data['project'])}", address(data["from"]), "", gist(data)
            case "alert" if data["kind"] not in TOLD_OTHERWISE:
                about = f"@{one_line(data['nick'], 64)}" if data["nick"] else "post room"
                return about, "alert", "failed", data["text"]
            case "worker" if data["state"] in SHOWN_STATES:
                state = "failed" if data["state"] in FAILED else ""
                said = SHOWN_STATES[data["state"]]
                return f"@{one_line(data['nick'])}", said, state, data["detail"]
        return "", "", "", ""

    def _update(self, data: Any) -> tuple[str, str, str, str]:
        task = data["task"]
        updates = self._updates.pop(task, None) or TaskUpdates(data["worker"])
        if not data["final"]:
            self._updates[task] = updates
            while len(self._updates) > ATTEMPTS_KEPT:
                self._updates.pop(next(iter(self._updates)))
        label, text = updates.parts(data)
        return address(data["worker"]), f"{short(task)} {label}", data["state"], text


def _approval(data: Any, now: float) -> SeenEvent:
    """What is asked for, or how that was decided."""
    who, id_, answer = address(data["worker"]), short(data["id"]), data["answer"]
    state, uid = one_line(data["state"], 40), data["worker"]["uid"]
    if state == "pending":
        asked = f"asks for approval {id_}"
        text = f"{one_line(data['tool'], 80)}: {what(data)}"
        return SeenEvent(data["asked_at"], who, asked, state, text, uid)
    by = f" by {decider(answer)}" if answer else ""
    at = answer["at"] if answer else format_time(now)
    text = one_line(answer["reason"], 300) if answer else ""
    label = f"has its request {id_} {state}{by}"
    return SeenEvent(at, who, label, state, text, uid)


def _uid(kind: str, data: dict[str, Any]) -> str:
    """The agent that an event is about, "" for a project and for the post room itself."""
    match kind:
        case "task" | "update":
            return data["worker"]["uid"]
        case "mail":
            return data["from"]["uid"]
        case "worker":
            return data["uid"]
        case "alert":
            return data["who"]["uid"] if data["who"] else ""
    return ""


def activity_words(record: Activity) -> tuple[str, str]:
    """What happened in a project beside its posts, and the state that this tells of."""
    what, task = record["what"], short(record["task"] or "")
    by, state = record["by"], one_line(record["state"], 40)
    match what:
        case "took":
            return f"takes task {task} of {address(by)}" if by else f"takes task {task}", ""
        case "asks":
            return f"asks about task {task}", "asks"
        case "ended":
            return f"has ended task {task}, {state}", state
        case "approval":
            return f"asks for approval {short(record['approval'] or '')}", "asks"
        case "decided":
            request = short(record["approval"] or "")
            # The worker is the one that asked, and not who decided.
            of = f"has its request {request} {state}"
            return f"{of}{f' by {address(by)}' if by else ''}", state
        case "failed":
            return "has failed", "failed"
        case "joined" | "left":  # a spawn of a worker, its removal
            return "was added" if what == "joined" else "was removed", ""
    return f"has {one_line(what, 40)}", ""
