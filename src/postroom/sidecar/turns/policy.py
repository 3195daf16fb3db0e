"""The policy of a worker: what its coding agent may do, or may not do, without asking a person (`protocol.patterns`).

The template's `auto_deny` counts first, then its `auto_approve`, then what people have added for the worker, then the
autonomy that they have set, or the template. What is left is asked. People add, and take back, while the agent works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from postroom.protocol.autonomy import Autonomy, is_edit, word_of
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
