"""The workspaces of the workers of an organisation: begun, shown to the sandbox, and brought back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from postroom.errors import InvalidInput, NotFound, PostroomError
from postroom.observe import get_logger
from postroom.protocol.modes import DIRECT
from postroom.sandbox.limit_monitor import LimitMonitor
from postroom.sandbox.port import Mount, SandboxProvider
from postroom.settings import Settings
from postroom.workers.leftovers import delete
from postroom.workers.reach import Reach
from postroom.workers.workspaces import branches, covers, tracking
from postroom.workers.workspaces.bringing import (
    LONGEST_NAME,
    MOST_NAMES,
    Worker,
    begin,
    bring,
    desk_of,
    refuse_beyond,
    relink,
    store_of,
)
from postroom.workers.workspaces.git import Git
from postroom.workers.workspaces.job import EMPTY, Desk, borrowed
from postroom.workers.workspaces.layout import refuse_bare
from postroom.workers.workspaces.plan import Plan, others, plan, refuse_never
from postroom.workers.workspaces.records import FILE, Held
from postroom.workers.workspaces.repository import Repository, look
from postroom.workers.workspaces.syncing import Synced, accept, resumed, sync
from postroom.workers.workspaces.taking import Offer, Taken, merge, offer, undo
from postroom_a2a.text import one_line

log = get_logger(__name__)


class Owner(Protocol):
    """The agent whose workspace it is."""

    @property
    def uid(self) -> str:
        """Its uid."""
        ...

    @property
    def nick(self) -> str:
        """Its nick."""
        ...


@dataclass(frozen=True, slots=True)
class Placed:
    """What a worker's sandbox shows of its workspace.

    Attributes:
        workspace: the host's folder.
        mounts: of what it borrows.
        judged: see `SandboxSpec.judged`.
        covered: see `SandboxSpec.covered`.
    """

    workspace: Path
    mounts: tuple[Mount, ...] = ()
    judged: bool = False
    covered: tuple[str, ...] = ()


class Workspaces:
    """The workspaces of an organisation; one order at a time about each."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._monitor = LimitMonitor()
        self._locks: dict[str, asyncio.Lock] = {}
        self._known: dict[str, Held | None] = {}
        self.doing: dict[str, str] = {}
        """By uid: what is being done about a workspace now, for people."""
        self.standing: dict[str, tracking.Standing] = {}
        """By uid: how far a worker and the branch that it began from are apart, as of the last look."""

    def _root(self, uid: str) -> Path:
        return self._settings.workers / uid

    def held(self, uid: str) -> Held | None:
        """The record of a worker's workspace, None if it works on no folder."""
        if uid not in self._known:
            self._known[uid] = Held.load(self._root(uid))
        return self._known[uid]

    @asynccontextmanager
    async def _alone(self, uid: str) -> AsyncGenerator[None]:
        """One order at a time; each may change the record."""
        async with self._locks.setdefault(uid, asyncio.Lock()):
            try:
                yield
            finally:
                self._known.pop(uid, None)
                self.doing.pop(uid, None)

    async def plan(
        self,
        path: str,
        mode: str,
        provider: SandboxProvider,
        reach: Reach,
        patterns: Sequence[str] = (),
    ) -> Plan | None:
        """Check what a person asks for (`plan.plan`, `tracking.checked`); None for an empty folder."""
        patterns = tracking.checked(patterns)
        if not path:
            if mode or patterns:
                what = "a mode" if mode else "a pattern of branches"
                raise InvalidInput(f"{what} needs a workspace", remedy="--workspace DIR")
            return None
        found = await plan(path, mode, provider, reach, state=self._settings.state)
        if patterns and (found.repository is None or found.mode == DIRECT):
            raise InvalidInput(
                "branches are seen by a worker with a branch of its own in a repository alone",
                remedy="leave --branches out, or --as worktree",
            )
        return found

    async def ready(
        self,
        owner: Owner,
        path: str,
        mode: str,
        provider: SandboxProvider,
        limit: int | None,
        reach: Reach,
        patterns: Sequence[str] = (),
    ) -> Placed:
        """The workspace for a start; made if it is not there yet.

        Args:
            path: the folder that the worker was spawned for, "" for none.
            mode: how to work on it.
            limit: bytes of disk that the worker may use, None for any number.
            reach: what of the machine it may have.
            patterns: of further branches of the person that it sees.

        Raises:
            NotFound: the person's folder has gone.
            JobFailed, GitFailed, InvalidInput: it cannot be made.
        """
        root = self._root(owner.uid)
        if not path:
            return Placed(root / "workspace")
        worker = self._worker(owner, provider, reach)
        held = self.held(owner.uid)
        if held is None or not held.begun:
            settings = self._settings
            planned = await plan(path, mode, provider, reach, state=settings.state, uid=owner.uid)
            async with self._alone(owner.uid):
                await asyncio.to_thread(_clear, root)  # of a start that was killed
                await begin(worker, planned, limit, tracking.checked(patterns))
        async with self._alone(owner.uid):
            held = Held.load(worker.root) or Held(path, mode)
            return await self._placed(worker, await resumed(worker, held))

    async def refuse_beyond(self, uid: str, reach: Reach) -> None:
        """Raise Forbidden if the folder that a worker works on, or its repository, is beyond `reach`."""
        held = self.held(uid)
        if held is not None and held.begun:
            await asyncio.to_thread(refuse_beyond, held, reach)

    async def _placed(self, worker: Worker, held: Held) -> Placed:
        root = worker.root
        desk = await desk_of(worker, held)
        if held.top and held.lent is None:
            held = held.after(lent=tuple(map(str, desk.lent))).save(root)
        if not held.own:
            direct = held.mode == DIRECT
            if direct:
                await asyncio.to_thread(refuse_never, desk.workspace, self._settings.state)
                await asyncio.to_thread(covers.refuse_deep, desk.workspace)
            if direct and not held.top:
                await asyncio.to_thread(refuse_bare, desk.workspace)  # a worker may have made it
            await asyncio.to_thread(_note_covered, held, desk, root)
            lent = await asyncio.to_thread(covers.lent, desk.workspace) if direct else ()
            return Placed(desk.workspace, judged=direct, covered=(*desk.covered, *lent))
        await relink(worker, held, desk)
        (root / EMPTY).touch()
        mounts = borrowed(desk.lent, root / EMPTY, desk.workspace)
        if not held.top:
            return Placed(desk.workspace, mounts)
        await self.track(worker.uid)
        return Placed(desk.workspace, (*mounts, tracking.mount(root)))

    async def bring(
        self, owner: Owner, provider: SandboxProvider, reach: Reach, *, large: bool = False
    ) -> Held:
        """Bring back what the worker has done up to now; its branch in the person's repository has it then.

        Args:
            large: from now on also the files that the last time were over the limit.

        Raises:
            NotFound: the person's folder has gone, or the worker works on none.
            Forbidden: it is beyond `reach`.
            Conflict: a person is on its branch.
            JobFailed, GitFailed: it cannot be brought back as it is.
        """
        async with self._alone(owner.uid):
            worker, held = self._worker(owner, provider, reach), self._begun(owner)
            if large and held.large:
                let_in = tuple(dict.fromkeys((*held.let_in, *held.large)))
                held = held.after(let_in=let_in).save(worker.root)
            try:
                return await bring(worker, await resumed(worker, held))
            finally:
                with suppress(PostroomError):  # a repository that is gone is told by what needs it
                    await self.track(owner.uid)

    async def sync(
        self,
        owner: Owner,
        provider: SandboxProvider,
        reach: Reach,
        *,
        rebase: bool,
        resolve: bool = False,
    ) -> Synced:
        """Bring back what the worker has done, and the worker to its person's newest commit (`syncing.sync`).

        Raises:
            NotFound: the person's folder has gone, or the worker works on none.
        """
        async with self._alone(owner.uid):
            worker, held = self._worker(owner, provider, reach), self._begun(owner)
            try:
                return await sync(worker, held, rebase=rebase, resolve=resolve)
            finally:
                with suppress(PostroomError):  # a repository that is gone is told by what needs it
                    await self.track(owner.uid)

    async def accept(
        self, owner: Owner, provider: SandboxProvider, reach: Reach, commit: str
    ) -> Synced:
        """Have the merge count that the worker's agent made, if its work is still at `commit` (`syncing.accept`)."""
        async with self._alone(owner.uid):
            return await accept(self._worker(owner, provider, reach), self._begun(owner), commit)

    async def track(self, uid: str) -> None:
        """Have a worker see the branches of its person as they are now, and note how far both are apart.

        Raises:
            GitFailed, InvalidInput: the repository cannot be read.
        """
        held = Held.load(self._root(uid))
        if held is not None and _tracked(held):
            git = store_of(self._root(uid), held)
            self.standing[uid] = await tracking.track(self._root(uid), git, held)

    def tracked(self) -> dict[str, dict[str, Held]]:
        """By repository of a person: the workers with branches of their own in it, each with its record."""
        found: dict[str, dict[str, Held]] = {}
        for uid in sorted(path.parent.name for path in self._settings.workers.glob(f"*/{FILE}")):
            held = Held.load(self._root(uid))
            if held is not None and _tracked(held):
                found.setdefault(held.top, {})[uid] = held
        return found

    @contextmanager
    def saying(self, uid: str, what: str) -> Generator[None]:
        """Tell people in the block what is being done about a workspace."""
        self.doing[uid] = what
        try:
            yield
        finally:
            self.doing.pop(uid, None)

    def _begun(self, owner: Owner) -> Held:
        held = self.held(owner.uid)
        if held is None or not held.begun:
            raise NotFound(
                f"@{owner.nick} works on no folder of yours",
                remedy="spawn it with one: postroom spawn TEMPLATE --workspace DIR",
            )
        return held

    def _worker(self, owner: Owner, provider: SandboxProvider, reach: Reach) -> Worker:
        root, state = self._root(owner.uid), self._settings.state
        say = partial(self.doing.__setitem__, owner.uid)
        largest = self._settings.max_file_mb * 1_000_000
        return Worker(
            owner.uid, owner.nick, root, state, provider, self._monitor, reach, largest, say
        )

    def store(self, uid: str, held: Held) -> Git:
        """Git on the repository that gets the work."""
        return store_of(self._root(uid), held)

    async def repository(self, folder: Path) -> Repository:
        """The repository that `folder` lies in.

        Raises:
            InvalidInput: it lies in none.
        """
        found = await look(folder, self._settings.state)
        if found is None:
            raise InvalidInput(f"{folder} is in no repository")
        return found

    async def branches(self) -> set[str]:
        """The branches of all workers, of whatever organisation and repository."""
        found = await asyncio.to_thread(lambda: list(others(self._settings.state, "")))
        return {held.branch for held in found if held.branch}

    async def merge(self, uid: str, tree: str = "") -> Taken:
        """Merge a worker's branch into what the person is on (`taking.merge`); the record keeps how to go back."""
        async with self._merging(uid) as held:
            done = await merge(self.store(uid, held), held, tree)
            if done.before != done.after:
                held.after(merged=(done.onto, done.before, done.after)).save(self._root(uid))
            return done

    async def offer(self, uid: str) -> Offer:
        """What a merge of a worker's branch would do now (`taking.offer`)."""
        async with self._merging(uid) as held:
            return await offer(self.store(uid, held), held)

    async def undo(self, uid: str) -> Taken:
        """Take back the last merge of a worker's branch (`taking.undo`)."""
        async with self._merging(uid) as held:
            done = await undo(self.store(uid, held), held)
            held.after(merged=()).save(self._root(uid))
            return done

    @asynccontextmanager
    async def _merging(self, uid: str) -> AsyncGenerator[Held]:
        """One merge at a time into a repository."""
        async with self._alone(uid):
            held = self.held(uid)
            if held is None or not held.begun:
                raise NotFound("it works on no folder of yours any more")
            async with self._alone(held.top):
                yield held

    async def lending(self, uid: str) -> tuple[str, ...]:
        """The files in a worker's workspace that lend their owner's account, as they can be shown."""
        held = self.held(uid)
        if held is None:
            return ()
        direct = held.mode == DIRECT
        place = Path(held.path) if direct else self._root(uid) / "workspace"
        names = await asyncio.to_thread(covers.lending, place)
        return tuple(one_line(name, LONGEST_NAME) for name in names[:MOST_NAMES])

    def ended(self, uid: str) -> None:
        """Tidy the person's folder after the end of a worker that wrote it itself."""
        held = self.held(uid)
        if held is not None and held.mode == DIRECT:
            covers.uncover(Path(held.path))

    async def forget(self, uid: str) -> None:
        """Delete the refs and the record of a removed worker; its branch and its folder stay."""
        held = self.held(uid)
        if held is None:
            return
        self.ended(uid)
        async with self._alone(uid):
            try:
                if held.top:
                    await branches.forget(Path(held.top), uid)
            except PostroomError as error:
                log.warning("the refs of %s stay in %s: %s", uid, held.top, error)
            (self._root(uid) / FILE).unlink(missing_ok=True)
        self._locks.pop(uid, None)
        self.standing.pop(uid, None)


def _tracked(held: Held) -> bool:
    return held.begun and held.own and bool(held.top)


def _note_covered(held: Held, desk: Desk, root: Path) -> None:
    held.after(covered=covers.marks(desk.workspace, desk.covered)).save(root)


def _clear(root: Path) -> None:
    for name in ("workspace", "changes.git", "git"):
        delete(root / name)
