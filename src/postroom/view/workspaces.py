"""Where a worker works, and what it changed there, as people read it. Git's words are made harmless here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from postroom.protocol.modes import COPY, DIRECT
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.protocol.shapes import Applied, Difference, Synced, Workspace

MORE = "... there is more: name a PATH, or look at the branch with git"
"""What stands below a diff that is cut."""

AGAINST_BOTH = (
    "the merge that its agent made, beside both sides (what is as one of them is left out):"
)

SHORT = 12
"""Digits of a commit that are shown."""


def where(workspace: Workspace) -> str:
    """Where a worker works, such as `on branch postroom/coder of ~/src/app`."""
    path, branch = one_line(workspace["path"]), one_line(workspace["branch"])
    if workspace["mode"] == DIRECT:
        return f"in {path} itself"
    copied = "on a copy" if workspace["mode"] == COPY else ""
    if not branch:
        return f"{copied or 'on a branch'} of {path}"
    return f"{copied}{', ' if copied else ''}on branch {branch} of {path}"


def place(workspace: Workspace) -> str:
    """The same, with how far both are apart."""
    far = "" if workspace["mode"] == DIRECT else apart(workspace)
    return f"{where(workspace)} ({far})" if far else where(workspace)


def changed(found: Difference) -> str:
    """How much was changed, in a few words."""
    if not found["files"]:
        return "nothing changed"
    return f"{counted(found['files'], 'file')} changed, {counted(found['commits'], 'commit')}"


def whole(found: Difference) -> str:
    """The text of a diff, with that of a merge that does not count yet below it."""
    merge = found.get("merge")
    return found["text"] + (f"\n{AGAINST_BOTH}\n{merge['text']}" if merge else "")


def counted(number: int, noun: str) -> str:
    """A number of things: `1 file`, `3 files`."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def apart(workspace: Workspace) -> str:
    """How far a worker and the branch that it began from are apart, such as `3 behind main, 2 ahead`; "" for not."""
    behind, ahead = workspace.get("behind", 0), workspace.get("ahead", 0)
    said = [f"{behind} behind {one_line(workspace.get('onto', ''), 60)}"] if behind else []
    return ", ".join([*said, *([f"{ahead} ahead"] if ahead else [])])


def offered(found: Applied) -> list[str]:
    """What a merge would do, or why there can be none now."""
    branch, path = one_line(found["branch"]), one_line(found["path"])
    if found["hinders"]:
        return [
            f"{branch} is up to date in {path}",
            f"it cannot be merged now: {one_line(found['hinders'])}",
        ]
    at = f", now at {_commit(found['back'])}" if found["back"] else ""
    into = (
        f"{branch} is up to date in {path}, and would be merged into {one_line(found['onto'])}{at}"
    )
    return [into, *(one_line(note) for note in found["notes"])]


def merged(found: Applied) -> str:
    """That a branch was merged, and where to."""
    branch, path, onto = one_line(found["branch"]), one_line(found["path"]), one_line(found["onto"])
    before = f"; it was at {_commit(found['back'])}" if found["back"] else ""
    return f"merged {branch} into {onto} of {path}: {_commit(found['merged'])}{before}"


def undone(found: Applied) -> str:
    """That a merge was taken back."""
    onto, path = one_line(found["onto"]), one_line(found["path"])
    return f"{onto} of {path} is at {_commit(found['back']) or 'no commit'} again"


def nothing_to_merge(found: Applied) -> str:
    """Why there is nothing to merge."""
    direct = found["mode"] == DIRECT
    return f"nothing to merge: {'it worked in your folder itself' if direct else 'there is nothing new'}"


def synced(found: Synced) -> str:
    """That a worker has the person's newest commits, or that a merge of its agent does not count yet."""
    if found.get("merge"):
        return waits(found["worker"])
    branch, new = one_line(found["workspace"].get("onto", "")), counted(found["taken"], "commit")
    done = f"has {new} more of {branch}" if found["taken"] else f"has all of {branch} already"
    return f"@{one_line(found['worker'])} {done}: {_commit(found['onto'])}"


def waits(worker: str) -> str:
    """That a merge of an agent does not count yet, and what asks for it."""
    return f"its agent's merge does not count yet: postroom task sync @{one_line(worker)}"


def _commit(name: str) -> str:
    return one_line(name)[:SHORT]
