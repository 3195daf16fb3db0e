"""Assigns a task to a worker: the one that the requester names, or the least busy one that has the skill."""

from __future__ import annotations

from postroom.directory.agents import Directory
from postroom.directory.search import AgentSearch
from postroom.errors import InvalidInput, NotFound, StreamFull
from postroom.store.agents import Agent
from postroom.tasks.requests import Requests, request_key
from postroom.tasks.service import OrgTaskService
from postroom.tasks.views import TaskView
from postroom_a2a.text import one_line

MAX_CHOSEN = 1024
"""Choices that are remembered for a key that comes again at once; older ones are folded, and found in SQL."""


class TaskAssigner:
    """Finds the worker of a task, and asks it.

    A request that comes again with its key goes to the worker that was chosen for it before.
    """

    def __init__(
        self, office: OrgTaskService, requests: Requests, directory: Directory, search: AgentSearch
    ) -> None:
        self._office = office
        self._requests = requests
        self._directory = directory
        self._search = search
        self._chosen: dict[tuple[str, str], str] = {}

    async def delegate(
        self,
        requester: str,
        *,
        to: str,
        skill: str,
        text: str,
        key: str = "",
        context: str = "",
    ) -> TaskView:
        """Ask the agent `to` for a task, or, with `skill` alone, whoever has it and the least to do.

        With a key, a request that comes again goes to the same worker as before, whoever has the least to do by then.

        Raises:
            NotFound: nobody is called that, or no agent has the skill.
            InvalidInput: neither `to` nor `skill`, and what `OrgTaskService.delegate` says.
            MessageTooLarge, StreamFull, StateUnwritable, RequestTimeout, BusDisconnected: as that says, too.
        """
        if not (to or skill):
            raise InvalidInput("a task is for somebody", remedy="name an agent or a skill")
        named = request_key(key)
        worker = await (self._directory.resolve(to) if to else self.choose(requester, skill, named))
        try:
            return await self._office.delegate(
                requester, worker, text, skill=skill, key=key, context=context
            )
        except StreamFull:
            self._chosen.pop(
                (requester, named), None
            )  # nothing was asked: another one may have room
            raise

    async def choose(self, requester: str, skill: str, key: str) -> Agent:
        """Who is to do for `requester` what `skill` is wanted for: whoever works, is online and has the least to do.

        Args:
            requester: uid; it is not chosen itself.
            skill: id of a skill on the other's card.
            key: from which the requester makes the id of its message: what was asked under it goes to the same agent
                again. "" for none.

        Raises:
            NotFound: no other agent has the skill.
        """
        if key and (given := await self._given(requester, key)) is not None:
            return given
        having = [found for found in await self._search.having(skill) if found[0].uid != requester]
        if not having:
            raise NotFound(
                f"no other agent has the skill {one_line(skill, 80)!r}",
                remedy="postroom agents lists skills",
            )
        counts = await self._office.open_counts()
        worker, _ = min(
            having,
            key=lambda found: (
                bool(self._office.blocker(found[0].uid)),
                not found[1],
                counts.get(found[0].uid, 0),
                found[0].nick,
            ),
        )
        if key:
            self._chosen[requester, key] = worker.uid
            while len(self._chosen) > MAX_CHOSEN:
                del self._chosen[next(iter(self._chosen))]
        return worker

    async def _given(self, requester: str, key: str) -> Agent | None:
        # Also one that has the skill no more: it was asked when it had.
        everybody = {agent.uid: agent for agent in await self._directory.all()}
        chosen = self._chosen.get((requester, key), "")
        return everybody.get(chosen or await self._requests.given(requester, key, everybody))
