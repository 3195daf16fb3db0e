"""Assigns a task to a worker: the one that the requester names, or the least busy one with the skill."""

from __future__ import annotations

from postroom.directory.agents import Directory
from postroom.directory.search import AgentSearch
from postroom.errors import InvalidInput, NotFound, StreamFull
from postroom.protocol.content import Content
from postroom.store.agents import Agent
from postroom.tasks.requests import Requests, request_key
from postroom.tasks.service import OrgTaskService
from postroom.tasks.views import TaskView
from postroom_a2a.text import one_line

MAX_CHOSEN = 1024
"""Choices that are remembered for a key that is used again at once; older ones are folded, and found in SQL."""


class TaskAssigner:
    """Finds the worker of a task, and sends it the request.

    A repeated request with the same key goes to the same worker.
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
        said: Content | str,
        key: str = "",
        door: str = "",
    ) -> TaskView:
        """Request a task from the agent `to` or, with `skill` alone, from the least busy agent that has the skill.

        Raises:
            NotFound: no agent has that name, or no agent has the skill.
            InvalidInput: neither `to` nor `skill` is given.
            PostroomError: as `OrgTaskService.delegate`.
        """
        if not (to or skill):
            raise InvalidInput(
                "a task needs a worker or a skill", remedy="name an agent or a skill"
            )
        named = request_key(key)
        worker = await (self._directory.resolve(to) if to else self.choose(requester, skill, named))
        try:
            return await self._office.delegate(
                requester, worker, said, skill=skill, key=key, door=door
            )
        except StreamFull:
            self._chosen.pop(
                (requester, named), None
            )  # nothing was sent: another worker may have room
            raise

    async def choose(self, requester: str, skill: str, key: str) -> Agent:
        """The agent that gets the task: of those with the skill and online, the one with the least to do.

        Args:
            requester: uid; it is not chosen itself.
            key: key of the request's message id. An earlier request under it decides the agent. "" for none.

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
        # Even one that no longer has the skill: it had the skill when it got the request.
        everybody = {agent.uid: agent for agent in await self._directory.all()}
        chosen = self._chosen.get((requester, key), "")
        return everybody.get(chosen or await self._requests.given(requester, key, everybody))
