"""Where a worker works, and what it changed there, as people read it. Git's words are made harmless here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.lines.rows import Style
from postroom.protocol.modes import COPY, DIRECT
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Difference, Workspace

MORE = "... there is more: name a PATH, or look at the branch with git"
"""What stands below a diff that is cut."""

_HEADS = ("diff --git ", "--- ", "+++ ")
_STYLES = (("@@", Style.TOOL), ("+", Style.ADDED), ("-", Style.REMOVED))


def place(workspace: Workspace) -> tuple[str, Style]:
    """Where a worker works, such as `on branch postroom/coder of ~/src/app`; in red if it is the folder itself."""
    path, branch = one_line(workspace["path"]), one_line(workspace["branch"])
    if workspace["mode"] == DIRECT:
        return f"in {path} itself", Style.BAD
    copied = "on a copy" if workspace["mode"] == COPY else ""
    if not branch:
        return f"{copied or 'on a branch'} of {path}", Style.PLAIN
    return f"{copied}{', ' if copied else ''}on branch {branch} of {path}", Style.PLAIN


def changed(found: Difference) -> str:
    """How much was changed, in a few words."""
    if not found["files"]:
        return "nothing changed"
    files = "1 file" if found["files"] == 1 else f"{found['files']} files"
    commits = "1 commit" if found["commits"] == 1 else f"{found['commits']} commits"
    return f"{files} changed, {commits}"


def diff_style(line: str) -> Style:
    """What a line of a diff is."""
    if line.startswith(_HEADS):
        return Style.STRONG
    return next((style for start, style in _STYLES if line.startswith(start)), Style.PLAIN)
