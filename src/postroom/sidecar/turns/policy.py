"""The policy of a worker: what its coding agent may do, or may not do, without asking a person (`protocol.patterns`).

The template's `auto_deny` counts first, then its `auto_approve`, then what people have added for the worker, then the
autonomy that they have set, or the template. What is left is asked. People add, and take back, while the agent works.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from postroom.protocol.approvals import Decision
from postroom.protocol.autonomy import Autonomy, is_edit, word_of
from postroom.protocol.events import EventKind
from postroom.protocol.patterns import approving, denies
from postroom.sidecar.adapters.turns import Answer, Asked
from postroom.sidecar.turns.control import ControlChannel, Record, digest_of
from postroom_a2a.times import format_time


@dataclass(frozen=True, slots=True)
class Verdict:
    """The policy's decision and the rule that made it."""

    allow: bool
    rule: str


@dataclass(slots=True)
class Policy:
    """The rules of one worker.

    Attributes:
        approve, deny: of its template.
        autonomous: what is not denied is allowed.
        added: what people have allowed for this worker alone.
        autonomy: what people have set, by task; "" for all turns.
        folder: where the agent works.
    """

    approve: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    autonomous: bool = False
    added: tuple[str, ...] = ()
    autonomy: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""

    def allow(self, added: Sequence[str], autonomy: Mapping[str, str]) -> None:
        """Take what people have added and set, in place of what was before."""
        self.added, self.autonomy = tuple(added), dict(autonomy)

    def unasked(self, *, resident: bool) -> bool:
        """Whether a program of the agent is to ask for nothing.

        An agent that never asks could not be denied anything, nor be made to ask again while it works. So one that runs
        all the time is told so by its template alone; each of its requests is allowed where people have set that.
        """
        people = {*self.autonomy.values()}
        if self.deny or people - {Autonomy.ALL}:
            return False
        return self.autonomous or (not resident and self.autonomy.get("") == Autonomy.ALL)

    def judge(self, tool: str, given: Mapping[str, Any], about: str = "") -> Verdict | None:
        """The decision on a use of a tool in a turn for the task `about`; None if a person is to be asked."""
        for rule in self.deny:
            if denies(rule, tool, given):
                return Verdict(False, rule)
        if rules := approving((*self.approve, *self.added), tool, given):
            return Verdict(True, ", ".join(rules))
        word = word_of(self.autonomy, autonomous=self.autonomous, task=about)
        allows = word is Autonomy.ALL or (word is Autonomy.EDITS and self.edits(tool, given))
        return Verdict(True, f"autonomy {word}") if allows else None

    def edits(self, tool: str, given: Mapping[str, Any]) -> bool:
        """Whether a use of a tool only changes files that lie open in the agent's folder."""
        return is_edit(tool, given, self.folder)


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
    """What one worker's agent asks before it acts, and the answers: by the policy, by a person, or by the clock."""

    def __init__(
        self,
        worker: str,
        rules: Rules,
        control: ControlChannel,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._worker = worker
        self._rules = rules
        self._control = control
        self._now = now
        self._open: dict[str, _Open] = {}
        control.answered = self._answered

    async def ask(self, asked: Asked, about: str, report: Report) -> Answer | None:
        """The answer to a request; None once the agent no longer asks.

        Args:
            about: id of the task or message that the turn is for.
        """
        digest = digest_of(self._worker, about, asked.tool, asked.input)
        approval = self._control.name(digest, self._equal(digest))
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
        record = self._control.claim(approval)
        if record is None:
            # Reported also if a run before has asked the same: it is one approval, and the first report counts.
            report(EventKind.CONTROL_REQUEST, request, asked.raw)
            if not self._rules.people:
                return self._by_default(NOBODY)
            self._control.ask(approval, about)
            record = await self._wait(asked.request, digest, approval, expires, report)
        if record is None or record.get("decision") == Decision.WITHDRAWN:
            return None
        self._control.use(digest, approval)
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
        for approval in self._control.left(about):
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
            if self._control.open(approval):
                self._report_settled(approval, Decision.WITHDRAWN, report, "agent")
            self._control.use(digest, approval)
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
        self._control.use(digest, approval)

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
