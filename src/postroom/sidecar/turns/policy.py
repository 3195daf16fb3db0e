"""The policy of a worker: what its coding agent may do, or may not do, without asking a person (`protocol.patterns`).

The template's `auto_deny` counts first, then its `auto_approve`, then what people have added for the worker. What no
pattern names is asked. People add, and take back, while the agent works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from postroom.protocol.patterns import approving, denies


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
    """

    approve: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    autonomous: bool = False
    added: tuple[str, ...] = ()

    def allow(self, added: Sequence[str]) -> None:
        """Take what people have added, in place of what was added before."""
        self.added = tuple(added)

    def judge(self, tool: str, given: Mapping[str, Any]) -> Verdict | None:
        """The decision on a use of a tool; None if a person is to be asked."""
        for rule in self.deny:
            if denies(rule, tool, given):
                return Verdict(False, rule)
        if rules := approving((*self.approve, *self.added), tool, given):
            return Verdict(True, ", ".join(rules))
        return Verdict(True, "autonomous") if self.autonomous else None
