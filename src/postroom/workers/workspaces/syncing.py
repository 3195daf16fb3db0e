"""A worker brought up to its person's newest commit: merged or rebased in a sandbox, and its files put there.

The commits of both are made first, with nothing of the worker touched. The record says then where it is being moved;
from there on whatever comes next about the workspace ends the move first, so that a kill leaves it before or after.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from postroom.errors import Conflict, InvalidInput
from postroom.protocol.modes import DIRECT
from postroom.workers.workspaces import branches, merging
from postroom.workers.workspaces.bringing import (
    LONGEST_NAME,
    Worker,
    bring,
    desk_of,
    hash_in,
    order_of,
    settle,
    store_of,
    take,
    texts_in,
    uncommitted,
)
from postroom.workers.workspaces.git import Git
from postroom.workers.workspaces.job import Desk, Job
from postroom.workers.workspaces.program import MERGES, check_version
from postroom.workers.workspaces.records import Held
from postroom.workers.workspaces.showing import Joined, joined, unseen
from postroom_a2a.text import one_line

TRIES = 3
"""How often it is begun again when the worker commits meanwhile."""


@dataclass(frozen=True, slots=True)
class Move:
    """Where a worker is being put, as its record keeps it.

    Attributes:
        before: its newest work until now; its files were so.
        top: its newest work from now on.
        head: the commit that its branch is at then; `top` has what it had not committed beside.
        tip: the commit that its branch was at, "" for none.
    """

    before: str
    top: str
    head: str
    tip: str


@dataclass(frozen=True, slots=True)
class Synced:
    """What came of it.

    Attributes:
        held: the record after it.
        onto: the person's newest commit.
        taken: how many commits the worker had not.
        conflicts: the files that keep it from being done; the worker is as it was.
        joined: the merge that its agent made, if that does not count yet: then nothing was done.
    """

    held: Held
    onto: str
    taken: int = 0
    conflicts: tuple[str, ...] = ()
    joined: Joined | None = None


async def sync(worker: Worker, held: Held, *, rebase: bool, resolve: bool = False) -> Synced:
    """Bring the work back, and the worker to the newest commit of the branch that it began from.

    Args:
        resolve: what conflicts is given to its agent, so the merge that it makes is to be seen before it counts.

    Raises:
        InvalidInput: it has no such branch, or git is too old.
        Conflict: the branch has gone, or the worker is in the middle of something.
    """
    _refuse_without(worker, held)
    await check_version(MERGES)
    git = store_of(worker.root, held)
    for _ in range(TRIES):
        held = await bring(worker, await resumed(worker, held))
        onto = await git.value(f"refs/heads/{held.origin}")
        if not onto:
            raise Conflict(
                f"the branch {held.origin} that @{worker.nick} began from has gone from {held.top}",
                remedy="make it again, or spawn another worker",
            )
        if (found := await joined(git, held)) is not None:
            return Synced(held, onto, joined=found)
        if held.brought and await branches.contains(git, held.brought, onto):
            return Synced(held, onto)
        taken = await git.line("rev-list", "--count", onto, *excluding(held.brought))
        done = await _joined(worker, held, git, onto, rebase=rebase)
        if isinstance(done, Held):
            return Synced(done, onto, int(taken or 0))
        if done:
            if resolve:
                await git.set(branches.joined_ref(worker.uid), held.brought)
                held = held.after(joining=(onto, held.brought)).save(worker.root)
            return Synced(held, onto, int(taken or 0), done)
    raise Conflict(
        f"@{worker.nick} goes on working while it is brought up to date",
        remedy="do it again when it rests",
    )


async def accept(worker: Worker, held: Held, commit: str) -> Synced:
    """The merge that its agent made counts from now on.

    Raises:
        InvalidInput: there is none that does not count yet.
        Conflict: the worker's work is another one by now.
    """
    git = store_of(worker.root, held)
    if not await unseen(git, held):
        raise InvalidInput(f"@{worker.nick} has made no merge that does not count yet")
    if held.brought != commit:
        raise Conflict(
            f"@{worker.nick} has gone on: its work is at {held.brought[:12]} by now, and nothing was accepted",
            remedy=f"look at it again: postroom task sync {worker.nick}",
        )
    onto = held.base or held.joining[0]
    held = held.after(joining=()).save(worker.root)
    await git.drop(branches.joined_ref(worker.uid))
    return Synced(held, onto)


def excluding(commit: str) -> tuple[str, ...]:
    """The word by which git leaves out what is in a commit; none for ""."""
    return (f"^{commit}",) if commit else ()


def _refuse_without(worker: Worker, held: Held) -> None:
    if held.mode == DIRECT or not held.top:
        why = (
            "works in the folder itself" if held.mode == DIRECT else "works on a copy of no branch"
        )
        raise InvalidInput(f"@{worker.nick} {why}: there is nothing to bring up to date")
    if not held.origin:
        raise InvalidInput(
            f"@{worker.nick} began from no branch, but from a commit",
            remedy=f"switch to a branch, then: postroom restart {worker.nick}"
            if held.origin is None
            else "spawn another worker while you are on a branch",
        )


async def _joined(
    worker: Worker, held: Held, git: Git, onto: str, *, rebase: bool
) -> Held | tuple[str, ...]:
    """The record after the move, or the files that conflict; () if the worker went on meanwhile."""
    desk = await desk_of(worker, held)
    worker.say("rebases its work" if rebase else f"merges {held.origin}")
    async with Job(desk, worker.monitor) as job:
        order = {
            **order_of(worker, held),
            "do": "merge",
            "onto": onto,
            "work": held.brought,
            "rebase": rebase,
            "title": f"Merge {held.origin} into {held.branch}",
            "message": uncommitted(worker),
        }
        answer = await job.run(order, merging.__file__)
        if (left := _left(worker, answer)) is not None:
            return left
        head, top = (hash_in(answer, name, held.format) for name in ("head", "top"))
        await take(worker, held, job, top, branches.next_ref(worker.uid))
    if not (await branches.contains(git, top, head) and await branches.contains(git, top, onto)):
        raise Conflict("what came back has not both")
    move = Move(held.brought, top, head, hash_in(answer, "tip", held.format))
    held = held.after(moving=(move.before, move.top, move.head, move.tip)).save(worker.root)
    answer = await _move(worker, held, desk, again=False)
    if (left := _left(worker, answer)) is not None:  # nothing was changed
        held.after(moving=()).save(worker.root)
        return left
    return await _moved(worker, held, git)


def _left(worker: Worker, answer: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The files that conflict, () if the worker has gone on, None if all is done."""
    if refused := texts_in({"refused": [answer.get("refused")]}, "refused"):
        raise Conflict(f"@{worker.nick} cannot be brought up to date: {refused[0]}")
    if "again" in answer:
        return ()
    return tuple(texts_in(answer, "conflicts")) or None


async def _move(
    worker: Worker, held: Held, desk: Desk, *, again: bool, force: bool = False
) -> dict[str, Any]:
    worker.say("puts its files there")
    move = Move(*held.moving)
    order = {
        **order_of(worker, held),
        "do": "move",
        "again": again,
        "force": force,
        "before": move.before,
        "top": move.top,
        "head": move.head,
        "tip": move.tip,
    }
    async with Job(desk, worker.monitor) as job:
        return await job.run(order, merging.__file__)


async def _moved(worker: Worker, held: Held, git: Git) -> Held:
    top = held.moving[1]
    await git.set(branches.work_ref(worker.uid), top)
    held = await asyncio.to_thread(held.after(moving=(), joining=()).save, worker.root)
    for ref in (branches.next_ref(worker.uid), branches.joined_ref(worker.uid)):
        await git.drop(ref)
    return await settle(worker, held, git, top)


async def resumed(worker: Worker, held: Held) -> Held:
    """The record once a move that was cut off is done; where the worker has gone on by itself, it stays as it is."""
    if not held.moving:
        return held
    desk = await desk_of(worker, held)
    answer = await _move(worker, held, desk, again=True)
    if "conflicts" in answer:
        # The kill left a file half written, which looks like work of the worker: in case it is, it is kept.
        async with Job(desk, worker.monitor) as job:
            order = {"do": "bring", "message": f"files of @{worker.nick} after a kill"}
            said = await job.run(order_of(worker, held) | order)
            saved = hash_in(said, "top", held.format)
            await take(worker, held, job, saved, branches.saved_ref(worker.uid))
        answer = await _move(worker, held, desk, again=True, force=True)
    if any(name in answer for name in ("refused", "again", "conflicts")):
        return held.after(moving=()).save(worker.root)
    return await _moved(worker, held, store_of(worker.root, held))


def to_resolve(held: Held, found: Synced, *, rebase: bool) -> str:
    """The task of an agent whose work conflicts with its person's."""
    how = "rebase" if rebase else "merge"
    files = "".join(f"\n- {name}" for name in found.conflicts)
    return (
        f"Bring your branch up to date: the branch {one_line(held.origin or '', LONGEST_NAME)} that you began from has"
        f" moved, and git cannot join it with your work by itself.\n\nCommit what you have not committed yet, then run"
        f" `git {how} {found.onto}` in your workspace. These files conflict:{files}\n\nResolve them so that both"
        f" intentions hold, run the tests, and end the {how} with a commit. Change nothing else. Say how you resolved"
        " each file."
    )
