"""What a coding agent asks before it acts, and the answer: by the policy, by a person, or by the clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom.protocol.approvals import Decision
from postroom.protocol.events import EventKind
from postroom.sidecar.adapters.turns import Answer, Asked
from postroom.sidecar.turns.policy import Policy
from postroom.sidecar.turns.steering import Record, Steering, digest_of
from postroom_a2a.times import format_time

LATE = 15.0
"""Seconds after its end for which the control plane's word on an approval is awaited."""

NOBODY = "the agent may ask nobody: its template has no [sidecar] table"

Report = Callable[[EventKind, Mapping[str, Any], str], None]
"""Reports an event: its kind, its fields, and the agent's own line."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the template says of approvals.

    Attributes:
        default: `deny` or `allow`: what an expired approval counts as.
        timeout: seconds until it expires, 0 for never.
        people: there is a control plane that can ask somebody.
    """

    policy: Policy = field(default_factory=Policy)
    default: str = "deny"
    timeout: float = 0.0
    people: bool = True


@dataclass(slots=True, eq=False)
class _Open:
    digest: str
    approval: str
    answer: asyncio.Future[Record]


class Approvals:
    """The approvals of one worker's agent."""

    def __init__(
        self,
        worker: str,
        rules: Rules,
        steering: Steering,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._worker = worker
        self._rules = rules
        self._steering = steering
        self._now = now
        self._open: dict[str, _Open] = {}
        steering.answered = self._answered

    async def ask(self, asked: Asked, about: str, report: Report) -> Answer | None:
        """The answer to a request; None once the agent no longer asks.

        Args:
            about: id of the task or message that the turn is for.
        """
        digest = digest_of(self._worker, about, asked.tool, asked.input)
        approval = self._steering.name(digest, self._equal(digest))
        expires = self._now() + self._rules.timeout if self._rules.timeout else 0.0
        request = self._request(asked, approval, expires)
        verdict = (
            None if asked.question else self._rules.policy.judge(asked.tool, asked.input, about)
        )
        if verdict is not None:
            report(EventKind.CONTROL_REQUEST, request, asked.raw)
            decision = Decision.ALLOWED if verdict.allow else Decision.DENIED
            self._settled(digest, approval, decision, report, rule=verdict.rule)
            return Answer(verdict.allow, text="" if verdict.allow else f"denied by {verdict.rule}")
        record = self._steering.claim(approval)
        if record is None:
            # Reported also if a run before has asked the same: it is one approval, and the first report counts.
            report(EventKind.CONTROL_REQUEST, request, asked.raw)
            if not self._rules.people:
                return self._by_default(NOBODY)
            self._steering.ask(approval, about)
            record = await self._wait(asked.request, digest, approval, expires, report)
        if record is None or record.get("decision") == Decision.WITHDRAWN:
            return None
        self._steering.use(digest, approval)
        return self._answer(record, asked)

    def withdraw(self, request: str = "") -> None:
        """The agent no longer waits for this request; with "" for none of them."""
        for name in [request] if request else list(self._open):
            found = self._open.pop(name, None)
            if found is not None and not found.answer.done():
                found.answer.set_result({"decision": Decision.WITHDRAWN})

    def over(self, about: str, report: Report) -> None:
        """The work on a task or message is over: nobody need answer what was asked in it."""
        self.withdraw()
        for approval in self._steering.left(about):
            self._report_settled(approval, Decision.WITHDRAWN, report, "agent")

    def lost(self) -> None:
        """The agent has ended and will ask again: its approvals stay open."""
        for found in self._open.values():
            found.answer.cancel()
        self._open.clear()

    @property
    def waiting(self) -> int:
        """Requests that wait for a person."""
        return len(self._open)

    async def _wait(
        self, request: str, digest: str, approval: str, expires: float, report: Report
    ) -> Record | None:
        found = _Open(digest, approval, asyncio.get_running_loop().create_future())
        self._open[request] = found
        try:
            async with asyncio.timeout(expires + LATE - self._now() if expires else None):
                record = await found.answer
        except TimeoutError:
            record = {"decision": Decision.EXPIRED}
            self._report_settled(approval, Decision.EXPIRED, report, "clock")
        finally:
            if self._open.get(request) is found:
                del self._open[request]
        if record.get("decision") == Decision.WITHDRAWN:
            if self._steering.open(approval):
                self._report_settled(approval, Decision.WITHDRAWN, report, "agent")
            self._steering.use(digest, approval)
        return record

    def _answered(self, approval: str, record: Record) -> None:
        """Hand an answer to the request that waits for it, if one does."""
        for found in self._open.values():
            if found.approval == approval and not found.answer.done():
                found.answer.set_result(record)

    def _answer(self, record: Record, asked: Asked) -> Answer:
        said, given = str(record.get("reason") or ""), record.get("input")
        given = given if isinstance(given, dict) else None
        match record.get("decision"):
            case Decision.ALLOWED | Decision.EDITED:
                if asked.question:
                    told = (given or {}).get("text", said)
                    return Answer(True, text=str(told))
                edited = record.get("decision") == Decision.EDITED
                return Answer(True, input=given if edited else None, text=said)
            case Decision.EXPIRED:
                return self._by_default("nobody has answered in time")
        return Answer(False, text=said or "a person has denied it")

    def _by_default(self, why: str) -> Answer:
        return Answer(self._rules.default == "allow", text=why)

    def _request(self, asked: Asked, approval: str, expires: float) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "request": approval,
            "kind": "question" if asked.question else "tool",
            "tool": asked.tool,
            "title": asked.title,
            "input": dict(asked.input),
            "default": self._rules.default,
        }
        optional: dict[str, Any] = {
            "call": asked.call,
            "reason": asked.reason,
            "options": list(asked.options),
            "fixed": asked.fixed,
            "edits": self._rules.policy.edits(asked.tool, asked.input),
        }
        optional["expires_at"] = format_time(expires) if expires else ""
        return fields | {name: value for name, value in optional.items() if value}

    def _settled(
        self, digest: str, approval: str, decision: Decision, report: Report, *, rule: str
    ) -> None:
        self._report_settled(approval, decision, report, "policy", {"rule": rule})
        self._steering.use(digest, approval)

    @staticmethod
    def _report_settled(
        approval: str,
        decision: Decision,
        report: Report,
        channel: str,
        by: Mapping[str, str] | None = None,
    ) -> None:
        fields = {
            "request": approval,
            "decision": decision.value,
            "channel": channel,
            "by": by or {},
        }
        report(EventKind.CONTROL_RESPONSE, fields, "")

    def _equal(self, digest: str) -> int:
        return sum(found.digest == digest for found in self._open.values())
