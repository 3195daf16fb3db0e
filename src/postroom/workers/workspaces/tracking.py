"""The person's branch that a worker began from: how far apart both are."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.workers.workspaces.git import Git
from postroom.workers.workspaces.records import Held


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a worker and its person's branch are apart, as of the last look.

    Attributes:
        newest: the commit of the branch, "" for none.
        behind: commits that only the branch has.
        ahead: those that only the worker has.
    """

    newest: str = ""
    behind: int = 0
    ahead: int = 0


async def standing(git: Git, held: Held) -> Standing:
    """How far they are apart now."""
    newest = await git.value(f"refs/heads/{held.origin}") if held.own and held.origin else ""
    if not newest:
        return Standing()
    if not held.brought:
        return Standing(newest, int(await git.line("rev-list", "--count", newest) or 0))
    both = f"{newest}...{held.brought}"
    counted = await git.line("rev-list", "--left-right", "--count", both)
    behind, _, ahead = counted.partition("\t")
    return Standing(newest, int(behind or 0), int(ahead or 0))
