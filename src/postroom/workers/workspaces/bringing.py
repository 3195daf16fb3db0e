"""A workspace begun and brought back: an order in a sandbox, a bundle, refs in the repository that gets the work."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postroom.errors import Conflict, NotFound
from postroom.protocol.modes import COPY, DIRECT, WORKTREE
from postroom.sandbox.limit_monitor import LimitMonitor
from postroom.sandbox.port import SandboxProvider, SandboxSpec
from postroom.workers.reach import Reach
from postroom.workers.workspaces import branches, covers, heavy, tracking
from postroom.workers.workspaces.copying import copy
from postroom.workers.workspaces.git import Git
from postroom.workers.workspaces.job import Desk, Job, JobFailed, seen
from postroom.workers.workspaces.layout import GIT, make_bare
from postroom.workers.workspaces.plan import Plan
from postroom.workers.workspaces.records import Held
from postroom.workers.workspaces.repository import Module, Repository, guarded, look, notes, told
from postroom_a2a.text import one_line

HASH = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
AS_IT_WAS = "the folder as it was when the worker began"
MOST_NAMES = 20
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Worker:
    """Whose workspace it is.

    Attributes:
        root: its folder in the state folder.
        state: the state folder.
        provider: of its sandbox.
        reach: what of the machine it may have.
        largest: bytes of a file that comes back without being let in.
        say: is told what is being done now.
    """

    uid: str
    nick: str
    root: Path
    state: Path
    provider: SandboxProvider
    monitor: LimitMonitor
    reach: Reach
    largest: int
    say: Callable[[str], None] = lambda _: None

    @property
    def own_store(self) -> Path:
        """The repository for a folder that is in none."""
        return self.root / "changes.git"

    @property
    def mail(self) -> str:
        """An address that no person has (RFC 2606)."""
        return f"{self.nick}@{self.uid}.postroom.invalid"


def store_of(root: Path, held: Held) -> Git:
    """Git on the repository that gets the work."""
    return Git(Path(held.top)) if held.top else Git.own(root / "changes.git")


async def begin(
    worker: Worker, planned: Plan, limit: int | None, patterns: tuple[str, ...] = ()
) -> Held:
    """Make a workspace as planned; on an error the caller deletes the worker's folder."""
    repository, folder = planned.repository, planned.folder
    held = Held(path=str(folder), mode=planned.mode)
    workspace = worker.root / "workspace"
    await asyncio.to_thread(workspace.mkdir, parents=True, exist_ok=True, mode=0o700)
    said: list[str] = []
    if repository is not None:
        held = held.after(
            top=str(repository.top),
            head=repository.head,
            base=repository.head,
            format=repository.format,
            shallow=repository.shallow,
            lent=tuple(map(str, repository.lent)),
            own=planned.mode != DIRECT,
        )
        if planned.mode != DIRECT:
            held = held.after(
                branch=await branches.free_name(repository.git, worker.nick),
                origin=await origin_of(repository.git),
                patterns=patterns,
            )
            said += await tracking.notes(repository.git, held)
        if planned.mode == WORKTREE:
            said += await notes(repository, folder)
    else:
        await asyncio.to_thread(make_bare, worker.own_store)
    if planned.mode == COPY:
        said += (await asyncio.to_thread(copy, folder, workspace, limit)).notes
    if planned.mode == DIRECT:
        said = _said_of_direct(repository)
    if repository is not None:
        said += await told(repository)
    held = held.after(notes=tuple(said)).save(worker.root)
    desk = await desk_of(worker, held)
    base = await (_own(worker, held, desk) if held.own else _first(worker, held, desk))
    if held.own:
        held = held.after(objects=seen(desk, worker.root), person=person_of(desk, worker))
    held = held.after(base=base, began=base, brought=base, begun=True)
    return held.save(worker.root)


async def origin_of(git: Git) -> str:
    """The branch that the person is on, "" for none."""
    ref = (await git.repo()).layout.head().removeprefix("ref: ")
    return ref.removeprefix("refs/heads/") if ref.startswith("refs/heads/") else ""


def _said_of_direct(repository: Repository | None) -> list[str]:
    found = ["it writes your folder itself, and what it writes there you may run"]
    if repository is not None and not (repository.top / GIT).is_dir():
        found.append("git does not work for it: the folder is a linked worktree or a submodule")
    return found


async def _own(worker: Worker, held: Held, desk: Desk) -> str:
    """Make the worker's repository; returns the commit to compare with."""
    async with Job(desk, worker.monitor) as job:
        person = person_of(desk, worker)
        order = {"do": "begin", "copied": held.mode == COPY, "message": AS_IT_WAS, "person": person}
        answer = await job.run(order_of(worker, held) | order)
        base = hash_in(answer, "base", held.format)
        await take(worker, held, job, base, branches.base_ref(worker.uid))
    return base


async def _first(worker: Worker, held: Held, desk: Desk) -> str:
    """Note the state of a folder without a repository of the worker's own."""
    async with Job(desk, worker.monitor) as job:
        answer = await job.run(order_of(worker, held) | {"do": "bring", "message": AS_IT_WAS})
        base = hash_in(answer, "top", held.format)
        await take(worker, held, job, base, branches.base_ref(worker.uid))
    return base


async def relink(worker: Worker, held: Held, desk: Desk) -> None:
    """Tell the worker's repository where the objects are, if its next sandbox has them elsewhere."""
    where, person = seen(desk, worker.root), person_of(desk, worker)
    if (where, person) != (held.objects, held.person):
        async with Job(desk, worker.monitor) as job:
            await job.run(order_of(worker, held) | {"do": "relink", "person": person})
        if held.origin is None:
            held = held.after(origin=await origin_of(store_of(worker.root, held)))
        held.after(objects=where, person=person).save(worker.root)


def person_of(desk: Desk, worker: Worker) -> str:
    """Where the worker's sandbox shows the branches of its person."""
    shown = tracking.mount(worker.root)
    spec = SandboxSpec((), {}, "/", desk.workspace, None, worker.root / "log", read_only=(shown,))
    return f"{desk.provider.paths(spec).mounts[shown.target]}/{tracking.REFS}"


async def bring(worker: Worker, held: Held) -> Held:
    """Bring back what is new, and give the worker's branch its value.

    Raises:
        Conflict: a person is on its branch; the work is in the repository, under the worker's ref.
    """
    desk = await desk_of(worker, held)
    found: tuple[str, ...] = ()
    if held.mode == DIRECT:  # first, since a worker can prevent what comes behind
        found = await _found(held)
        held = held.after(left=found[:MOST_NAMES], made=found[:MOST_NAMES]).save(worker.root)
    worker.say("reads its files")
    async with Job(desk, worker.monitor) as job:
        message = uncommitted(worker)
        answer = await job.run(order_of(worker, held) | {"do": "bring", "message": message})
        top = hash_in(answer, "top", held.format)
        await take(worker, held, job, top, branches.work_ref(worker.uid))
    git = store_of(worker.root, held)
    large = large_in(answer)
    left = (
        *found,
        *_too_large(worker, large),
        *texts_in(answer, "left"),
        *texts_in(answer, "notes"),
    )
    held = held.after(left=left[:MOST_NAMES], large=tuple(large))
    return await settle(worker, held, git, top)


async def settle(worker: Worker, held: Held, git: Git, top: str) -> Held:
    """Note that the worker's newest work is `top`, which is in the repository, and give its branch that value.

    Raises:
        Conflict: a person is on its branch.
    """
    base = await compared(git, held, top)
    if base != held.base:
        await git.set(branches.base_ref(worker.uid), base)
    held = held.after(base=base, brought=top)
    if held.mode != DIRECT:
        made = (await _brought(git, held, top))[:MOST_NAMES]
        brings = await heavy.brings(git, held.base, top, worker.largest)
        held = held.after(made=made, brings=brings)
    held = held.save(worker.root)
    if not held.branch or top in (held.base, held.began):
        return held
    name, value = await branches.place(git, held.branch, top, held.placed, worker.nick)
    return held.after(branch=name, placed=value).save(worker.root)


async def compared(git: Git, held: Held, top: str) -> str:
    """What the work up to `top` is compared with: the newest commit of the person's branch that it has."""
    began = held.base if held.began is None else held.began
    if not (held.own and held.origin and top):
        return began
    newest = await git.value(f"refs/heads/{held.origin}")
    common = await git.line("merge-base", newest, top) if newest else ""
    if common and (not began or await branches.contains(git, common, began)):
        return common
    return began


def uncommitted(worker: Worker) -> str:
    """The subject of a commit of what the worker has not committed."""
    return f"uncommitted work of @{worker.nick}"


async def _found(held: Held) -> tuple[str, ...]:
    """What git takes for a git directory and the worker has made in a person's folder, as it can be shown."""
    names = await asyncio.to_thread(covers.found, top := Path(held.path))
    marked = zip(names, covers.marks(top, names), strict=True)
    return tuple(one_line(name, LONGEST_NAME) for name, mark in marked if mark not in held.covered)


async def _brought(git: Git, held: Held, top: str) -> tuple[str, ...]:
    """The same of its branch."""
    if top in ("", held.base):
        return ()
    names = await branches.git_directories(git, held.base, top)
    return tuple(one_line(name, LONGEST_NAME) for name in names)


def large_in(answer: Mapping[str, Any]) -> dict[str, int]:
    """The files of an answer that were too large to be committed, with their sizes in bytes."""
    found = answer.get("large")
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: size for name, size in pairs if isinstance(size, int) and size >= 0}


def _too_large(worker: Worker, large: Mapping[str, int]) -> list[str]:
    most = f"over workspace.max_file_mb, {worker.largest // 1_000_000}"
    command = f"postroom diff @{worker.nick} --large"
    return [
        f"{heavy.sized(name, size)}, {most}: {command} lets it in" for name, size in large.items()
    ]


def texts_in(answer: Mapping[str, Any], key: str) -> list[str]:
    """The texts in a list of an answer, as they can be shown."""
    found = answer.get(key)
    if not isinstance(found, list):
        return []
    return [one_line(text, LONGEST_NAME) for text in found if isinstance(text, str)]


async def take(worker: Worker, held: Held, job: Job, commit: str, ref: str) -> None:
    """Take a commit from the bundle of `job`, or find it where it is already, and name it by `ref`."""
    git = store_of(worker.root, held)
    if not commit:
        return
    if await asyncio.to_thread(job.fetched):
        worker.say("checks what comes back")
        await git.take(job.bundle, commit)
    if await git.line("cat-file", "-t", commit) != "commit":
        raise JobFailed("what the worker is at did not come back")
    await git.set(ref, commit)


def order_of(worker: Worker, held: Held) -> dict[str, Any]:
    """What every order about a workspace has."""
    return {
        "own": held.own,
        "branch": held.branch,
        "head": held.head,
        "base": held.base,
        "known": [name for name in dict.fromkeys((held.head, held.base, held.brought)) if name],
        "format": held.format,
        "largest": worker.largest if held.branch and not held.moving else 0,
        "let_in": held.let_in,
        "shallow": list(held.shallow),
        "name": worker.nick,
        "mail": worker.mail,
    }


def hash_in(answer: Mapping[str, Any], key: str, kind: str) -> str:
    """The commit that an answer names, "" for none; raises JobFailed if it cannot be one."""
    found = answer.get(key)
    if found == "" and isinstance(found, str):
        return ""
    if not isinstance(found, str) or not HASH.fullmatch(found):
        raise JobFailed("git in the sandbox gave no commit")
    if (len(found) == 64) != (kind == "sha256"):
        raise JobFailed("git in the sandbox gave a commit of another repository")
    return found


def _refuse_more(nick: str, held: Held, repository: Repository) -> None:
    """Refuse folders of objects that nobody has judged and told: anybody may have named them since the spawn."""
    if held.lent is None:
        return
    for place in repository.objects:
        if str(place) not in held.lent and not place.is_relative_to(repository.top):
            raise Conflict(
                f"{repository.top} borrows objects from {place}, which it did not when @{nick} was spawned",
                remedy="look at its objects/info/alternates; a new worker gets them",
            )


def _judged(held: Held, repository: Repository) -> tuple[Module, ...]:
    """The submodules of which all was judged and told, or lies in the folder that was named."""
    known = held.lent or ()
    return tuple(
        module
        for module in repository.modules.found
        if all(
            str(place) in known or place.is_relative_to(repository.top) for place in module.objects
        )
    )


async def desk_of(worker: Worker, held: Held) -> Desk:
    """Where orders about the workspace are done.

    Raises:
        NotFound: the person's folder, or its repository, has gone.
        Conflict: it is another one, or borrows from elsewhere by now.
        Forbidden: by now it, or what its repository borrows, is beyond the worker's reach.
    """
    await asyncio.to_thread(refuse_beyond, held, worker.reach)
    desk = await _desk(worker, held)
    for place in desk.lent:
        if not place.is_relative_to(worker.root):
            worker.reach.refuse_place(place)
    return desk


def refuse_beyond(held: Held, reach: Reach) -> None:
    """Raise Forbidden if the folder that a worker works on, or its repository, is beyond `reach`."""
    for place in dict.fromkeys((held.path, held.top)):
        if place:
            reach.refuse_named(place, held.mode)


async def _desk(worker: Worker, held: Held) -> Desk:
    folder = worker.root / "git"
    own = worker.root / "workspace"
    if not held.top and held.mode == COPY:
        return Desk(worker.provider, own, _objects(worker.own_store), (), folder)
    place = Path(held.top or held.path)
    if not place.is_dir():
        raise gone(worker.nick, place)
    commit = held.base or held.head
    repository = await look(place, worker.state, commit) if held.top else None
    if held.top and (repository is None or repository.top != place):
        raise gone(worker.nick, place)
    if repository is not None and repository.format != held.format:
        raise Conflict(f"{place} is another repository than @{worker.nick} began with")
    objects = repository.objects if repository else _objects(worker.own_store)
    if repository is not None:
        _refuse_more(worker.nick, held, repository)
    if held.mode != DIRECT:
        inner = _judged(held, repository) if repository and held.mode == WORKTREE else ()
        return Desk(worker.provider, own, objects, (), folder, inner)
    places = await guarded(repository) if repository else ()
    kept = await asyncio.to_thread(covers.covered, place, places, repository=bool(repository))
    return Desk(worker.provider, place, objects, kept, folder)


def gone(nick: str, place: Path) -> NotFound:
    """The error for a folder that is not there any more."""
    return NotFound(
        f"the folder {place} that @{nick} works on is gone, or no repository any more",
        remedy=f"put it back; or postroom remove {nick}",
    )


def _objects(store: Path) -> tuple[Path, ...]:
    return ((store / "objects").resolve(),)
