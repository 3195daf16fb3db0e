"""What people tell a running agent: answers, interrupts, what it may do; as the control plane hands them on.

An answer may come while the agent does not run. So it is kept in a file, over restarts, with the place up to which the
control plane's records were read, until the agent asks the same again. Each answer is used once: the number of answers
that a request has used is a part of the next one's id.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from postroom.errors import PostroomError, StateUnwritable
from postroom.observe import get_logger
from postroom.protocol.approvals import Decision
from postroom.sidecar.bus import BACKOFF
from postroom.sidecar.control_client import ControlClient
from postroom.sidecar.turns.home import StateFile

KEPT = 1000
"""Answers that nobody has asked for yet, and requests whose answers are counted; the oldest are forgotten."""

_log = get_logger(__name__)

Record = Mapping[str, Any]


class ControlChannel:
    """The records of one worker's `control/pending`.

    Args:
        answered: called for each answer to an approval.
        interrupted: called for each interrupt.
        allowed: called with the patterns that people have added and the autonomy that they have set by task, when
            that changes.

    Attributes:
        terminal: called for each record of a terminal; None where there are none.
    """

    def __init__(self, file: StateFile) -> None:
        self._file = file
        kept = file.read()
        self.after = kept["after"] if type(kept.get("after")) is int else 0
        self._answers: dict[str, Record] = _table(kept.get("answers"))
        self._used: dict[str, int] = {
            key: count for key, count in _table(kept.get("used")).items() if type(count) is int
        }
        self._asked: dict[str, str] = {
            approval: about
            for approval, about in _table(kept.get("asked")).items()
            if isinstance(about, str)
        }
        self.answered: Callable[[str, Record], None] = lambda _approval, _record: None
        self.allowed: Callable[[Sequence[str], Mapping[str, str]], None] = lambda _rules, _set: None
        self.interrupted: Callable[[Record], None] = lambda _record: None
        self.terminal: Callable[[Record], Awaitable[None]] | None = None

    async def take(self, records: Sequence[Record], after: int) -> None:
        """Hand on the records up to the event `after`; the next run begins behind them."""
        for record in records:
            match record.get("type"):
                case "control_response":
                    self._answer(record)
                case "interrupt":
                    self.interrupted(record)
                case "policy" if isinstance(rules := record.get("rules"), list):
                    kept = _table(record.get("autonomy"))
                    self.allowed(
                        [rule for rule in rules if isinstance(rule, str)],
                        {task: word for task, word in kept.items() if isinstance(word, str)},
                    )
                case "terminal" if self.terminal is not None:
                    await self.terminal(record)
        if after > self.after:
            self.after = after
            self._keep()

    def _answer(self, record: Record) -> None:
        approval = str(record.get("request") or "")
        decision = record.get("decision")
        if not approval or decision not in {each.value for each in Decision if each.final}:
            return
        self._answers[approval] = dict(
            record
        )  # until it is used: this process may be killed before
        self.answered(approval, record)

    def claim(self, approval: str) -> Record | None:
        """The answer that came before the agent asked (again), if there is one."""
        return self._answers.get(approval)

    def name(self, digest: str, further: int = 0) -> str:
        """The id of the next request with that digest, `further` of which are open."""
        number = self._used.get(digest, 0) + further + 1
        return hashlib.sha256(f"{digest}/{number}".encode()).hexdigest()[:32]

    def ask(self, approval: str, about: str) -> None:
        """The agent has asked, in its work on the task or message `about`."""
        self._asked[approval] = about
        self._keep()

    def open(self, approval: str) -> bool:
        """Whether it was asked, and not settled."""
        return approval in self._asked

    def left(self, about: str) -> list[str]:
        """Approvals that were asked in a work that is over, and never settled; each is returned once."""
        found = [approval for approval, work in self._asked.items() if work == about]
        for approval in found:
            del self._asked[approval]
            self._answers.pop(approval, None)
        if found:
            self._keep()
        return found

    def use(self, digest: str, approval: str) -> None:
        """The agent has the answer: the next equal request is another one."""
        self._answers.pop(approval, None)
        self._asked.pop(approval, None)
        self._used[digest] = self._used.pop(digest, 0) + 1
        self._keep()

    def _keep(self) -> None:
        for table in (self._answers, self._used, self._asked):
            while len(table) > KEPT:
                del table[next(iter(table))]
        record = {"answers": self._answers, "used": self._used, "asked": self._asked}
        try:
            self._file.write({"after": self.after, **record})
        except StateUnwritable as error:
            _log.warning("answers are not kept over a restart: %s", error)


def digest_of(worker: str, about: str, tool: str, given: Mapping[str, Any]) -> str:
    """What makes two requests equal: the worker, the task or message, the tool and its input."""
    named = json.dumps([worker, about, tool, given], sort_keys=True, default=str)
    return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _table(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}


WAIT = 25.0
"""Seconds that one request waits for something."""


async def poll(control: ControlClient, worker: str, channel: ControlChannel) -> None:
    """Ask until cancelled; while the control plane is away, with growing pauses."""
    failures = 0
    while True:
        try:
            records, following = await control.pending(worker, channel.after, WAIT)
        except PostroomError as error:
            failures += 1
            if failures == 1:
                _log.info("what people say to the agent is not known: %s", error)
            await asyncio.sleep(BACKOFF.delay(failures))
            continue
        failures = 0
        await channel.take(records, following)
