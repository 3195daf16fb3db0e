"""What workers have done in the folders that they work on, brought back."""

from __future__ import annotations

import asyncio

from postroom.errors import DatabaseAway, PostroomError
from postroom.observe import get_logger
from postroom.protocol import shapes
from postroom.protocol.alerts import Alert
from postroom.protocol.modes import DIRECT
from postroom.store.agents import Agent
from postroom.store.workers import WorkerRecord
from postroom.workers.parts import WorkerParts
from postroom.workers.preparing import Preparing
from postroom.workers.reach import Reach
from postroom.workers.workspaces.bringing import LONGEST_NAME, MOST_NAMES
from postroom.workers.workspaces.git import Git
from postroom.workers.workspaces.records import Held
from postroom.workers.workspaces.service import Workspaces
from postroom.workers.workspaces.syncing import Synced
from postroom.workers.workspaces.tracking import Standing
from postroom_a2a.text import one_line

log = get_logger(__name__)

ALERT = "workspace"
"""Kind of the alert about work that cannot be brought back."""
MADE = "workspace-git"
"""Kind of the alert about a git directory that a worker made in a folder of a person."""
LARGE = "workspace-large"
"""Kind of the alert about files over the limit, which have not come back."""
LENDING = "workspace-set-id"
"""Kind of the alert about files that lend an account."""


class Returning:
    """Brings back the work of an organisation's workers, in sandboxes of their own kind."""

    def __init__(self, parts: WorkerParts, preparing: Preparing) -> None:
        self._alerts = parts.alerts
        self._preparing = preparing
        self.spaces = Workspaces(parts.settings)

    def held(self, uid: str) -> Held | None:
        """The record of the workspace of worker `uid`, None for an empty folder of its own."""
        return self.spaces.held(uid)

    def store(self, uid: str, held: Held) -> Git:
        """Git on the repository that has the work."""
        return self.spaces.store(uid, held)

    async def refuse_beyond(self, agent: Agent, record: WorkerRecord, by: str) -> None:
        """Raise Forbidden if the worker's folder is beyond the reach of `by`."""
        if path := record.origin.get("workspace"):
            reach = await self._preparing.reach(by)
            await asyncio.to_thread(reach.refuse_named, path, record.origin.get("mode", ""))
            await self.spaces.refuse_beyond(agent.uid, reach)

    async def reach(self, by: str) -> Reach:
        """What of the machine `by` may give a worker now."""
        return await self._preparing.reach(by)

    def unsaved(self, uid: str) -> tuple[str, ...]:
        """What of a removed worker is in its folder alone, () for nothing."""
        held = self.spaces.held(uid)
        return () if held is None else held.left or ("its last work",)

    async def bring(self, agent: Agent, record: WorkerRecord, *, large: bool = False) -> Held:
        """Bring back what a worker has done up to now.

        Args:
            large: let in the files that were over the limit the last time.

        Raises:
            NotFound: it works on no folder, or the folder has gone.
            Conflict: a person is on its branch.
            EnvironmentFault: it cannot be brought back as it is.
        """
        await self._name_lending(agent)
        prepared = await self._preparing.again(record)
        try:
            provider, reach = prepared.chosen.provider, prepared.reach
            held = await self.spaces.bring(agent, provider, reach, large=large)
        finally:
            await self._name_made(agent)  # whatever a worker prevents
        await self._name_large(agent, held)
        await self._alerts.end("its work was brought back", kind=ALERT, who=agent.uid)
        return held

    async def sync(
        self,
        agent: Agent,
        record: WorkerRecord,
        *,
        rebase: bool,
        resolve: bool = False,
        accept: str = "",
    ) -> Synced:
        """Bring a worker up to the newest commit of its person's branch; see `Workspaces.sync`, `Workspaces.accept`."""
        await self._name_lending(agent)
        prepared = await self._preparing.again(record)
        placed = (agent, prepared.chosen.provider, prepared.reach)
        if accept:
            return await self.spaces.accept(*placed, accept)
        try:
            found = await self.spaces.sync(*placed, rebase=rebase, resolve=resolve)
        finally:
            await self._name_made(agent)
        await self._name_large(agent, found.held)
        await self._alerts.end("its work was brought back", kind=ALERT, who=agent.uid)
        return found

    def shown(self, uid: str, *, left: bool = True) -> shapes.Workspace | None:
        """The workspace of worker `uid` for people, None for an empty folder of its own; runs no git.

        Args:
            left: its notes name what was not brought back.
        """
        held = self.held(uid)
        if held is None:
            return None
        said = [*held.notes, *held.warnings]
        if left:
            said += [f"not brought back: {name}" for name in held.left]
        standing = self.spaces.standing.get(uid, Standing())
        return {
            "path": held.path,
            "mode": held.mode,
            "branch": held.branch,
            "notes": said,
            "onto": held.origin or "",
            "behind": standing.behind,
            "ahead": standing.ahead,
            "doing": self.spaces.doing.get(uid, ""),
            "merged": held.merged[0] if held.merged else "",
        }

    async def _name_made(self, agent: Agent) -> None:
        held = self.held(agent.uid)
        if held is None or not held.made:
            return
        what = "made or moved a git directory" if held.mode == DIRECT else "its branch brings one"
        text = f"{what} in {held.path}, which decides what git runs there: {', '.join(held.made)}"
        await self._alerts.raise_alert(Alert(MADE, text, agent.uid))

    async def _name_large(self, agent: Agent, held: Held) -> None:
        if held.large:
            names = ", ".join(one_line(name, LONGEST_NAME) for name in held.large[:MOST_NAMES])
            text = f"not brought back, since too large: {names}; postroom diff @{agent.nick} --large lets them in"
            await self._alerts.raise_alert(Alert(LARGE, text, agent.uid))
        else:
            await self._alerts.end("there are none any more", kind=LARGE, who=agent.uid)

    async def _name_lending(self, agent: Agent) -> None:
        """Name the files that lend an account; first, since a worker can prevent what comes behind."""
        if names := await self.spaces.lending(agent.uid):
            text = f"files with the set-user-ID or set-group-ID bit in its workspace: {', '.join(names)}"
            await self._alerts.raise_alert(Alert(LENDING, text, agent.uid))
        else:
            await self._alerts.end("there are none any more", kind=LENDING, who=agent.uid)

    async def after(self, agent: Agent, record: WorkerRecord) -> None:
        """Bring back what a worker has done; what prevents it is an alert.

        Raises:
            DatabaseAway: it is for later.
        """
        if self.held(agent.uid) is None:
            return
        try:
            await self.bring(agent, record)
        except DatabaseAway:
            raise
        except PostroomError as error:
            log.warning("the work of %s was not brought back: %s", agent.uid, error)
            text = f"its work cannot be brought back: {error.message}"
            await self._alerts.raise_alert(Alert(ALERT, text, agent.uid))

    async def at_end(self, agent: Agent, record: WorkerRecord) -> str:
        """Bring back the work of a worker that is removed; why not all of it came back, "" if all did."""
        if self.held(agent.uid) is None:
            return ""
        try:
            held = await self.bring(agent, record)
        except PostroomError as error:
            log.warning("the work of %s was not brought back: %s", agent.uid, error)
            return f"its work could not be brought back ({error.message})"
        finally:
            self.ended(agent.uid)
        if held.mode == DIRECT or not held.left:
            return ""
        return f"it has what could not be brought back: {', '.join(held.left)}"

    def ended(self, uid: str) -> None:
        """Tidy the person's folder after the end of a worker that wrote it itself."""
        self.spaces.ended(uid)
