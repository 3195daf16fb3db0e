"""Approvals: what an agent asks before it acts, and the one answer. Pure.

An approval is folded from two kinds of events (`protocol.events`): `control_request` makes it, the first
`control_response` with its id that counts settles it; later ones have no effect.

    pending ──► allowed | denied | edited | withdrawn | expired

`withdrawn` is said by the sidecar (the agent no longer asks), or by the control plane when the worker or its task has
ended. `expired` is said by the control plane when `expires_at` is past; what the agent is then told is the request's
`default` (`allow` or `deny`). The same id is the same approval: what was settled is not asked again.

What a sidecar reports counts only as its own: a decision of the template's policy, or that the agent withdraws.

An act is what the control plane itself asks in an agent's name: whether it does for that agent what an agent may not do
alone. People alone settle it, and the clock.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from postroom.errors import InvalidInput

if TYPE_CHECKING:
    from postroom.protocol.shapes import Approval


class Decision(StrEnum):
    """State of an approval; all but the first are final."""

    PENDING = "pending"
    ALLOWED = "allowed"
    DENIED = "denied"
    EDITED = "edited"
    WITHDRAWN = "withdrawn"
    EXPIRED = "expired"

    @property
    def final(self) -> bool:
        """Whether no other state follows."""
        return self is not Decision.PENDING


BY_PEOPLE = frozenset({Decision.ALLOWED, Decision.DENIED, Decision.EDITED})
"""Decisions that a person or a policy makes."""

DEFAULTS = ("deny", "allow")
"""What an approval that nobody answered in time counts as; the first where the template says nothing."""

NO_ANSWER = "no answer"
"""In the place of a default: who asked a person at a terminal goes on asking there."""

PEOPLE_CHANNELS = ("cli", "attach", "chat", "screen", "api")
"""The ways by which a person's decision comes, as the person's program names itself."""

POLICY, AGENT, CLOCK, ROOM = "policy", "agent", "clock", "room"
"""The other ways: the template's policy decides, the agent withdraws, the clock lets expire, and the control plane
withdraws what nobody waits for any more."""

ACT = "act"
"""Kind of an approval that the control plane asks for: an operation of the API, in the name of an agent."""

IN_WORDS = ("question", ACT)
"""Kinds of approvals whose title says what is asked; of the others the tool does."""

REQUEST_ID = re.compile(r"[0-9a-f]{8,64}")
"""The form of an approval's id; one of another form is no approval."""

_OF_CONTROL_PLANE = {
    **dict.fromkeys(PEOPLE_CHANNELS, BY_PEOPLE),
    CLOCK: frozenset({Decision.EXPIRED}),
    ROOM: frozenset({Decision.WITHDRAWN}),
}
_OF_SIDECAR = {POLICY: BY_PEOPLE, AGENT: frozenset({Decision.WITHDRAWN})}


def check_editable(asked: Approval) -> None:
    """Raise InvalidInput where the agent takes no input but its own; the answer to a question is none."""
    if asked["kind"] != "question" and not asked.get("editable", True):
        raise InvalidInput(
            f"@{asked['worker']['nick']} takes no edited input: its agent's protocol has no place for one",
            remedy="allow it as it is, or deny it and say in the reason what it may do",
        )


def request_of(event: Mapping[str, Any]) -> str:
    """The id of the approval that an event is about, "" for none."""
    request = event.get("request")
    return request if isinstance(request, str) and REQUEST_ID.fullmatch(request) else ""


def as_reported(event: Mapping[str, Any]) -> dict[str, Any]:
    """What a sidecar reported, without a word that names a person or a person's way: the control plane alone knows who
    decided.
    """
    said = dict(event)
    if "by" in said:
        by = said["by"]
        rule = by.get("rule") if isinstance(by, Mapping) else None
        said["by"] = {"rule": rule} if isinstance(rule, str) else {}
    if "channel" in said and said["channel"] not in (POLICY, AGENT, CLOCK):
        said["channel"] = ""
    return said


def counts(event: Mapping[str, Any], *, reported: bool) -> bool:
    """Whether a `control_response` can settle an approval.

    Args:
        reported: by a sidecar, which cannot say that a person decided; else by the control plane.
    """
    channel, decision = event.get("channel"), event.get("decision")
    if not isinstance(channel, str) or not isinstance(decision, str):
        return False
    allowed = (_OF_SIDECAR if reported else _OF_CONTROL_PLANE).get(channel, frozenset())
    edited = decision == Decision.EDITED
    return decision in allowed and (not edited or isinstance(event.get("input"), dict))
