"""Approvals as people see them. What an agent asks is its own word: bounded here, made harmless where it is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from postroom.protocol import shapes
from postroom.protocol.approvals import DEFAULTS, PEOPLE_CHANNELS, Decision
from postroom.store.approvals import AnswerRow, ApprovalRow
from postroom.store.database import Store
from postroom.store.parties import Party
from postroom_a2a.times import format_time

KINDS = ("tool", "question")
"""What an agent asks for: that a tool may do something, or words."""


@dataclass(frozen=True, slots=True)
class ApprovalView:
    """An approval, its worker, and all answers to it, oldest first.

    Attributes:
        people: who answered, by uid.
        late: answers that came when it was settled.
    """

    row: ApprovalRow
    worker: Party
    people: Mapping[str, Party]
    late: Sequence[AnswerRow] = ()

    def as_json(self) -> shapes.Approval:
        """Shape of the API."""
        row, asked = self.row, self.row.request
        kind = asked.get("kind")
        return {
            "id": row.id,
            "seq": row.seq,
            "state": row.state.value,
            "worker": self.worker.as_json(),
            "task": row.task or None,
            "message": row.message or None,
            "kind": kind if kind in KINDS else KINDS[0],
            "tool": _text(asked, "tool"),
            "title": _text(asked, "title"),
            "input": _object(asked) or {},
            "editable": asked.get("fixed") is not True,
            "reason": _text(asked, "reason"),
            "default": default_of(row),
            "asked_at": format_time(row.asked_at),
            "expires_at": None if row.expires_at is None else format_time(row.expires_at),
            "answer": self._answer(row.settled, row.response, row.answered_at),
            "late": [
                shown
                for each in self.late
                if (shown := self._answer(each.id, json.loads(each.event), each.at)) is not None
            ],
        }

    def _answer(
        self,
        event: int,
        said: Mapping[str, Any],
        at: float | None,
    ) -> shapes.ApprovalAnswer | None:
        if not event or not said or at is None:
            return None
        return {
            "id": event,
            "at": format_time(at),
            "decision": _text(said, "decision"),
            "by": self._party(uid_of(said)),
            "channel": _text(said, "channel"),
            "reason": _text(said, "reason") or _said_by(said, "rule"),
            "input": _object(said),
        }

    def _party(self, uid: str) -> shapes.Party | None:
        found = self.people.get(uid)
        return None if found is None else found.as_json()


def views(store: Store, rows: Sequence[ApprovalRow]) -> list[ApprovalView]:
    """Views of `rows`, in their order."""
    # What the clock or the control plane said twice, as after a crash, is nobody's answer.
    late = [each for each in store.approvals.late(rows) if uid_of(json.loads(each.event))]
    said = [*(row.response for row in rows), *(json.loads(each.event) for each in late)]
    people = {uid_of(each) for each in said} - {""}
    known = store.agents.parties({*people, *(row.worker for row in rows)})
    return [
        ApprovalView(
            row,
            known[row.worker],
            known,
            [each for each in late if (each.worker, each.request) == (row.worker, row.id)],
        )
        for row in rows
    ]


def uid_of(said: Mapping[str, Any]) -> str:
    """The uid of the person who answered, "" where none did: what a sidecar reports can name nobody."""
    return _said_by(said, "uid") if said.get("channel") in PEOPLE_CHANNELS else ""


def _said_by(said: Mapping[str, Any], key: str) -> str:
    who = said.get("by")
    value = who.get(key) if isinstance(who, dict) else None
    return value if isinstance(value, str) else ""


def default_of(row: ApprovalRow) -> str:
    """What it counts as when it expires."""
    said = row.request.get("default")
    return said if said in DEFAULTS else DEFAULTS[0]


def outcome(view: ApprovalView) -> str:
    """How it was settled, as a sentence's end: `allowed by @maria at 12:00 over cli`."""
    shown = view.as_json()
    answer = shown["answer"]
    if answer is None:
        return shown["state"]
    by = f" by @{answer['by']['nick']}" if answer["by"] else ""
    why = f" ({answer['reason']})" if answer["reason"] else ""
    said = shown["state"] if shown["state"] != Decision.EXPIRED else "expired unanswered"
    return f"{said}{by} over {answer['channel']} at {answer['at']}{why}"


def _text(said: Mapping[str, Any], key: str) -> str:
    value = said.get(key)
    return value if isinstance(value, str) else ""


def _object(said: Mapping[str, Any]) -> dict[str, Any] | None:
    value = said.get("input")
    return value if isinstance(value, dict) else None
