"""The branch of a person that the agent's work began from: that it has moved is said once, in the next turn's prompt.

The post room writes where the branch stands to a file that the sandbox shows read-only. The branch's name is a
stranger's text: one that is more than plain letters is left out, and the commit stands for it.
"""

from __future__ import annotations

import re
from pathlib import Path

from postroom.errors import StateUnwritable
from postroom.observe import get_logger
from postroom.sidecar.turns.state import StateFile

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./+-]{0,99}")
_HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")

_log = get_logger(__name__)


class Base:
    """Where the branch stands, and up to which commit of it the agent was told.

    Args:
        standing: what the post room writes (`workers.workspaces.tracking.Standing`); None where it tracks no branch.
        kept: keeps what was told, over restarts.
    """

    def __init__(self, standing: Path | None, kept: StateFile) -> None:
        self._standing = StateFile(standing) if standing else None
        self._kept = kept
        self._told = str(kept.read().get("told") or "")

    def news(self) -> tuple[str, str]:
        """The commit that the branch has moved to, and the line that says so; two empty texts for no news."""
        found = self._standing.read() if self._standing else {}
        newest, behind = found.get("newest"), found.get("behind")
        if not isinstance(newest, str) or not _HASH.fullmatch(newest) or newest == self._told:
            return "", ""
        if type(behind) is not int or behind < 1:
            return "", ""
        return newest, moved(found.get("branch"), newest, behind)

    def told(self, newest: str) -> None:
        """The agent has been given the line."""
        self._told = newest
        try:
            self._kept.write({"told": newest})
        except StateUnwritable as error:
            _log.warning("that the agent was told of its base is not kept: %s", error)


def moved(branch: object, newest: str, behind: int) -> str:
    """The line for the agent. Pure."""
    plain = branch if isinstance(branch, str) and _PLAIN.fullmatch(branch) else ""
    name = f"The branch `{plain}`" if plain else "The branch that your work began from"
    more = "1 commit that you have not" if behind == 1 else f"{behind} commits that you have not"
    merge = f"`git merge {f'person/{plain}' if plain else newest}`"
    return f"{name} has {more}. Merge when it suits ({merge}), or ask."
