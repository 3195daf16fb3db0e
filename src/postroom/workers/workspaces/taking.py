"""The branch of a worker merged into what a person is on, and that undone; no file that git does not know is changed.

All is looked at first. Git itself refuses then what has changed meanwhile: it puts a file there only in place of one
that is as the last commit has it, and a branch only where it is still at that commit.
"""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from postroom.errors import Conflict, InvalidInput, PostroomError
from postroom.protocol.modes import DIRECT
from postroom.workers.workspaces import plain
from postroom.workers.workspaces.branches import LARGEST_TREE, contains
from postroom.workers.workspaces.git import Git, Repo
from postroom.workers.workspaces.program import (
    MERGES,
    GitFailed,
    Settings,
    check_version,
    settings_of_person,
)
from postroom.workers.workspaces.records import Held
from postroom.workers.workspaces.repository import changed, converts, filtered
from postroom.workers.workspaces.showing import command, unseen
from postroom_a2a.text import one_line

LARGEST_ATTRIBUTES = 1 << 20
ATTRIBUTES = r"(^|[ \t])(filter=|working-tree-encoding=|eol=crlf|crlf|ident|-merge|merge=|binary)"
"""What attributes may say that a plain merge of text does not do."""
HOOKS = ("pre-merge-commit", "prepare-commit-msg", "commit-msg", "post-merge")
"""What `git merge` runs (githooks(5))."""
SIGNS = "commit.gpgsign"
HEADS = "refs/heads/"


@dataclass(frozen=True, slots=True)
class Taken:
    """A merge that was done.

    Attributes:
        onto: the branch that was moved.
        before: the commit that it was at, "" for none yet.
        after: the commit that it is at.
    """

    onto: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Offer:
    """What a merge would do.

    Attributes:
        onto: the branch that is merged into, "" for none.
        back: the commit that it is at, "" for none yet.
        notes: what it leaves out of what the person's git would do, in sentences for people.
        hinders: why there can be none now, "" if there can.
    """

    onto: str = ""
    back: str = ""
    notes: tuple[str, ...] = ()
    hinders: str = ""


@dataclass(frozen=True, slots=True)
class Proposed:
    """A merge that can be done now.

    Attributes:
        onto: the branch that is moved.
        head: the commit that it is at, "" for none yet.
        theirs: the commit of the worker's branch.
        commit: the commit of both, "" if it has to be made of `tree`.
    """

    onto: str
    head: str
    theirs: str
    commit: str
    tree: str = ""


async def tree_of(git: Git, commit: str) -> str:
    """The tree of a commit: what its files are, whoever made it and when; "" for none."""
    return await git.line("rev-parse", "-q", "--verify", f"{commit}^{{tree}}") if commit else ""


async def proposed(git: Git, held: Held, tree: str = "") -> Proposed:
    """The merge of the branch of a worker into what the person is on; nothing of theirs is changed.

    Args:
        tree: of the branch as it was shown, "" for as it is now.

    Raises:
        InvalidInput: there is nothing to merge.
        Conflict: the person has changes, is in the middle of something, or the merge needs them.
    """
    if not command(held):
        why = "its work is in the folder already" if held.mode == DIRECT else "it has no branch"
        raise InvalidInput(f"there is nothing to merge: {why}", remedy="postroom diff shows it")
    if await unseen(git, held):
        raise Conflict(
            f"{held.branch} has a merge of {held.joining[0][:12]} that its agent made, and that does not count yet",
            remedy="postroom task sync @NICK shows it, and asks whether it counts",
        )
    by_hand = f"git -C {quote(held.top)} merge {held.branch}"
    await check_version(MERGES)
    own = await settings_of_person()
    on, head = await _refuse_busy(git, own, held, by_hand)
    theirs = await git.value(f"{HEADS}{held.branch}")
    if tree and await tree_of(git, theirs) != tree:
        raise Conflict(
            f"{held.branch} has gone on since it was shown: nothing was merged",
            remedy="look at it again: postroom diff @NICK",
        )
    if held.made:
        raise Conflict(
            f"{held.branch} brings what git takes for a git directory: {', '.join(held.made)}: nothing was merged",
            remedy=f"look at the branch, then: {by_hand}",
        )
    await _refuse_special(git, own, (head, theirs), f"look at the branch, then: {by_hand}")
    commit, tree = await _joined(git, (head, theirs), held, by_hand)
    if tree and not _named(own):
        raise Conflict(
            "a merge needs your name, and your git knows none",
            remedy=f"git config --global user.name NAME, and user.email; or {by_hand}",
        )
    await _refuse_overwritten(git, held, head, commit or tree, by_hand)
    return Proposed(on, head, theirs, commit, tree)


async def offer(git: Git, held: Held) -> Offer:
    """What a merge would do now, or why there can be none."""
    try:
        found = await proposed(git, held)
    except PostroomError as error:
        return Offer(hinders="; ".join(filter(None, (error.message, error.remedy))))
    if found.commit and found.commit == found.head:
        return Offer(found.onto, found.head, hinders=f"{found.onto} has all of it already")
    own, repo = await settings_of_person(), await git.repo()
    settings = own + repo.settings
    hooks = await asyncio.to_thread(_hooks, settings, repo)
    said = "none of your hooks runs"
    said += f" (git would run {', '.join(hooks)})" if hooks else ""
    if found.commit:
        signed = "no commit is made for it, since your branch only moves forward"
    else:
        signed = "the commit is not signed"
        signed += ", though your git signs (commit.gpgSign)" if settings.on(SIGNS) else ""
    return Offer(found.onto, found.head, (said, signed))


def _hooks(settings: Settings, repo: Repo) -> list[str]:
    """The person's hooks that git would run."""
    folder = repo.layout.common / "hooks"
    if named := settings.get("core.hookspath"):
        with suppress(RuntimeError):  # nobody's home
            folder = repo.layout.top / Path(named).expanduser()
    return [name for name in HOOKS if os.access(folder / name, os.X_OK)]


async def merge(git: Git, held: Held, tree: str = "") -> Taken:
    """Merge the branch of a worker into what the person is on; `tree` as for `proposed`.

    Raises:
        InvalidInput, Conflict: see `proposed`.
    """
    found = await proposed(git, held, tree)
    own = await settings_of_person()
    new = found.commit
    if not new:
        words = ("-p", found.head, "-p", found.theirs, "-m", f"Merge {held.branch}")
        made = await git.run("commit-tree", found.tree, *words, env=_named(own))
        new = made.decode().strip()
    await _put(git, own, found.onto, (found.head, new), f"merge {held.branch}")
    return Taken(found.onto, found.head, new)


async def undo(git: Git, held: Held) -> Taken:
    """Take back the last merge of a worker's branch; the branch of the person is where it was before.

    Raises:
        InvalidInput: there was none.
        Conflict: the person has moved on, has changes, or is in the middle of something.
    """
    if not held.merged:
        raise InvalidInput(
            "there is no merge to undo", remedy="postroom task apply says what can be merged"
        )
    done = Taken(*held.merged)
    own = await settings_of_person()
    on, head = await _refuse_busy(git, own, held, "undo it")
    there = f"git -C {quote(held.top)}"
    if on != done.onto:
        raise Conflict(
            f"the merge was into {done.onto}, and {held.top} is on {on}: nothing was undone",
            remedy=f"{there} switch {quote(done.onto)}, then undo it",
        )
    if head != done.after:
        raise Conflict(
            f"{on} has moved since the merge: nothing was undone",
            remedy=f"see what came since: {there} log {done.after[:12]}..",
        )
    both = (head, done.before)
    await _refuse_special(
        git, own, both, f"to go back by hand: {there} reset --keep {done.before[:12]}"
    )
    await _refuse_overwritten(git, held, *both, "undo it")
    await _put(git, own, on, both, f"undo of merge {held.branch}")
    return Taken(on, head, done.before)


async def _put(git: Git, own: Settings, on: str, both: tuple[str, str], message: str) -> None:
    """Put the person's files, and the branch that they are on, from one commit to another, "" for none."""
    none = await git.empty_tree()
    old, new = both
    await git.run("read-tree", "-m", "-u", old or none, new or none, files=True)
    ref = f"{HEADS}{on}"
    words = [ref, new, old or "0" * len(new)] if new else ["-d", ref, old]
    try:
        await git.run("update-ref", "-m", message, *words, env=_named(own))
    except GitFailed:
        await git.run("read-tree", "-m", "-u", new or none, old or none, files=True)
        raise


async def _joined(git: Git, both: tuple[str, str], held: Held, by_hand: str) -> tuple[str, str]:
    """The commit that has both, else the tree; no file is touched."""
    head, theirs = both
    if not head or await contains(git, theirs, head):
        return theirs, ""
    if await contains(git, head, theirs):
        return head, ""
    try:
        tree = await git.run("merge-tree", "--write-tree", head, theirs, stranger=True)
    except GitFailed as error:
        raise Conflict(
            f"{held.branch} conflicts with your work: nothing was merged", remedy=by_hand
        ) from error
    return "", tree.decode().split("\n")[0]


async def _refuse_overwritten(git: Git, held: Held, old: str, new: str, then: str) -> None:
    """Refuse what would take the place of files that git does not know, ignored ones too: git would not."""
    none = await git.empty_tree()
    words = ("diff-tree", "-r", "-z", "--name-status", "--no-renames", old or none, new or none)
    listed = await git.run(*words, stranger=True, most=LARGEST_TREE)
    found = await asyncio.to_thread(_overwritten, Path(held.top), listed)
    if found:
        raise Conflict(
            f"{one_line(found[0], 200)} is a file of yours that git does not know, and would be overwritten",
            remedy=f"move it away, then: {then}",
        )


def _overwritten(top: Path, listed: bytes) -> list[str]:
    fields = os.fsdecode(listed).split("\0")
    changes = list(zip(fields[::2], fields[1::2], strict=False))
    gone = {path for change, path in changes if change == "D"}
    return [
        name
        for change, path in changes
        if change == "A"
        for name in _in_the_way(top, path)
        if name not in gone
    ]


def _in_the_way(top: Path, path: str) -> list[str]:
    """What is at a path of a new file, or on the way to it."""
    for parent in reversed(Path(path).parents[:-1]):
        if not os.path.lexists(top / parent):
            return []
        if not plain.is_folder(top / parent):
            return [str(parent)]
    if not plain.is_folder(top / path):
        return [path] if os.path.lexists(top / path) else []
    walked = ((place, name) for place, _, names in os.walk(top / path) for name in names)
    return [str(Path(place, name).relative_to(top)) for place, name in walked]


def _named(own: Settings) -> dict[str, str]:
    name, mail = own.get("user.name"), own.get("user.email")
    if not name or not mail:
        return {}
    parts = {"NAME": name, "EMAIL": mail}
    return {f"GIT_{who}_{part}": parts[part] for who in ("AUTHOR", "COMMITTER") for part in parts}


async def _refuse_busy(git: Git, own: Settings, held: Held, then: str) -> tuple[str, str]:
    """The branch that the person is on, and its commit, "" for none yet."""
    if not Path(held.top).is_dir():
        raise Conflict(f"the repository {held.top} has gone", remedy="put it back")
    layout = (await git.repo()).layout
    if await asyncio.to_thread(layout.busy):
        raise Conflict(f"{held.top} is in the middle of a merge or rebase", remedy="end it")
    on = layout.head()
    if not on.startswith(f"ref: {HEADS}"):
        raise Conflict(f"{held.top} is on no branch", remedy=f"switch to one, then: {then}")
    if await changed(git, own, untracked=False):
        raise Conflict(
            f"{held.top} has uncommitted changes", remedy=f"commit or stash them, then: {then}"
        )
    return on.removeprefix(f"ref: {HEADS}"), await git.value("HEAD")


async def _refuse_special(git: Git, own: Settings, both: tuple[str, str], remedy: str) -> None:
    """Refuse what the person's git would do in another way than one without their settings."""
    repo = await git.repo()
    why = ""
    if repo.settings.on("core.sparsecheckout"):
        why = "your checkout is sparse"
    elif converts(own + repo.settings):
        why = "your git converts ends of lines"
    elif await _attributed(git, own, repo, both):
        why = "your git treats some files in its own way (attributes), which the worker's branch could have changed"
    if why:
        raise Conflict(f"{why}: nothing was changed", remedy=remedy)


async def _attributed(git: Git, own: Settings, repo: Repo, both: tuple[str, str]) -> bool:
    usual = own.get("core.attributesfile") or "~/.config/git/attributes"
    named = Path(repo.settings.get("core.attributesfile") or usual)
    with suppress(RuntimeError):  # nobody's home
        named = named.expanduser()
    for path in (repo.layout.common / "info" / "attributes", named):
        try:
            said = await asyncio.to_thread(plain.read, path.resolve(), LARGEST_ATTRIBUTES)
        except OSError:
            return True  # whatever git makes of it
        if re.search(ATTRIBUTES, (said or b"").decode(errors="replace"), re.MULTILINE):
            return True
    for commit in filter(None, both):
        if await filtered(git, commit, ATTRIBUTES):
            return True
    return False
