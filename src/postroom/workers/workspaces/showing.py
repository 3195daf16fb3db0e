"""What a worker changed, shown and merged in the repository that has its work; its folder is not looked at."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from postroom.errors import Conflict, InvalidInput
from postroom.protocol.modes import DIRECT
from postroom.workers.workspaces import plain
from postroom.workers.workspaces.branches import contains
from postroom.workers.workspaces.config import Settings, of_person
from postroom.workers.workspaces.git import Git
from postroom.workers.workspaces.program import MERGES, GitFailed, check_version
from postroom.workers.workspaces.records import Held
from postroom.workers.workspaces.repository import changed, converts, filtered
from postroom.workers.workspaces.view import Repo

LARGEST_ATTRIBUTES = 1 << 20
MOST_TEXT = 4 << 20
"""Bytes of a diff that are shown."""

ATTRIBUTES = r"(^|[ \t])(filter=|working-tree-encoding=|eol=crlf|crlf|ident|-merge|merge=|binary)"
"""What attributes may say that a plain merge of text does not do."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What a worker changed since it began.

    Attributes:
        text: as `git diff` prints it, without colours.
        cut: whether there is more than `text`.
    """

    text: str
    cut: bool
    files: int
    commits: int


async def difference(
    git: Git, held: Held, paths: Sequence[str] = (), *, stat: bool = False
) -> Difference:
    """The difference between the commit that the worker began from and its newest work.

    Args:
        paths: only these files and folders, relative to the repository, as they stand.
        stat: only the names and the numbers of lines.
    """
    base = held.base or await git.empty_tree()
    words = ("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--src-prefix=a/")
    form = ("--stat=100",) if stat else ()
    named = (base, held.brought or base, "--", *paths)
    literal = ("--literal-pathspecs", "diff", *words, "--dst-prefix=b/")
    text = await git.run(*literal, *form, *named, stranger=True, most=MOST_TEXT + 1)
    names = await git.run(*literal, "--name-only", "-z", *named, stranger=True)
    since = held.base if held.began not in (None, held.base) else held.head
    counted = f"{since}..{held.brought}" if since else held.brought
    commits = await git.line("rev-list", "--count", counted) if held.brought else "0"
    shown = text[:MOST_TEXT].decode(errors="replace")
    return Difference(shown, len(text) > MOST_TEXT, names.count(b"\0"), int(commits or 0))


def command(held: Held) -> str:
    """The command by which a person takes over the work of a worker, "" if there is none to take."""
    if not held.branch or held.brought == held.base:
        return ""
    return f"git merge {held.branch}"


async def merge(git: Git, held: Held) -> str:
    """Merge the branch of a worker into what the person is on; returns the new commit.

    Raises:
        InvalidInput: there is nothing to merge.
        Conflict: the person has changes, is in the middle of something, or the merge needs them.
    """
    if not command(held):
        why = "its work is in the folder already" if held.mode == DIRECT else "it has no branch"
        raise InvalidInput(f"there is nothing to merge: {why}", remedy="postroom diff shows it")
    by_hand = f"git -C {quote(held.top)} merge {held.branch}"
    await check_version(MERGES)
    own = await of_person()
    on, head = await _refuse_busy(git, own, held, by_hand)
    theirs = await git.value(f"refs/heads/{held.branch}")
    await _refuse_special(git, own, (head, theirs), held, by_hand)
    new = await _merged(git, own, (head, theirs), held, by_hand)
    await git.run("read-tree", "-m", "-u", *([head] if head else []), new, files=True)
    try:
        await git.run(
            *("update-ref", "-m", f"merge {held.branch}", on, new, head or "0" * len(new)),
            env=_named(own),
        )
    except GitFailed:
        await git.run("read-tree", "-m", "-u", new, head or await git.empty_tree(), files=True)
        raise
    return new


async def _merged(git: Git, own: Settings, both: tuple[str, str], held: Held, by_hand: str) -> str:
    """The commit that has both; no file is touched."""
    head, theirs = both
    if not head or await contains(git, theirs, head):
        return theirs
    if await contains(git, head, theirs):
        return head
    try:
        tree = await git.run("merge-tree", "--write-tree", head, theirs, stranger=True)
    except GitFailed as error:
        raise Conflict(
            f"{held.branch} conflicts with your work: nothing was merged", remedy=by_hand
        ) from error
    env = _named(own)
    if not env:
        raise Conflict(
            "a merge needs your name, and your git knows none",
            remedy=f"git config --global user.name NAME, and user.email; or {by_hand}",
        )
    words = ("-p", head, "-p", theirs, "-m", f"Merge {held.branch}")
    made = await git.run("commit-tree", tree.decode().split("\n")[0], *words, env=env)
    return made.decode().strip()


def _named(own: Settings) -> dict[str, str]:
    name, mail = own.get("user.name"), own.get("user.email")
    if not name or not mail:
        return {}
    parts = {"NAME": name, "EMAIL": mail}
    return {f"GIT_{who}_{part}": parts[part] for who in ("AUTHOR", "COMMITTER") for part in parts}


async def _refuse_busy(git: Git, own: Settings, held: Held, by_hand: str) -> tuple[str, str]:
    """The ref that the person is on, and its commit, "" for none yet."""
    if not Path(held.top).is_dir():
        raise Conflict(f"the repository {held.top} has gone", remedy="put it back")
    layout = (await git.repo()).layout
    if await asyncio.to_thread(layout.busy):
        raise Conflict(f"{held.top} is in the middle of a merge or rebase", remedy="end it")
    on = layout.head()
    if not on.startswith("ref: refs/heads/"):
        raise Conflict(f"{held.top} is on no branch", remedy=f"switch to one, then: {by_hand}")
    if await changed(git, own, untracked=False):
        raise Conflict(
            f"{held.top} has uncommitted changes", remedy=f"commit or stash them, then: {by_hand}"
        )
    return on.removeprefix("ref: "), await git.value("HEAD")


async def _refuse_special(
    git: Git, own: Settings, both: tuple[str, str], held: Held, by_hand: str
) -> None:
    """Refuse what the person's git would do in another way than one without their settings."""
    repo = await git.repo()
    why = ""
    if held.made:
        why = f"{held.branch} brings what git takes for a git directory: {', '.join(held.made)}"
    elif repo.settings.on("core.sparsecheckout"):
        why = "your checkout is sparse"
    elif converts(own + repo.settings):
        why = "your git converts ends of lines"
    elif await _attributed(git, own, repo, both):
        why = "your git treats some files in its own way (attributes), which the worker's branch could have changed"
    if why:
        raise Conflict(f"{why}: nothing was merged", remedy=f"look at the branch, then: {by_hand}")


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
