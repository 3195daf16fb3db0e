"""Who connects to the bus without the gateway: agents that are no workers and no people."""

from __future__ import annotations

from postroom.directory.agents import Directory
from postroom.errors import NotFound
from postroom.protocol.ids import CONTROL_PLANE, is_uid

BEHIND_THE_GATEWAY = "worker"
OUTSIDE = ("external", "service")


class Outsiders:
    """The agents whose lines the gateway does not write.

    The lines of a worker are the gateway's, those of people are the control plane's own doing.
    """

    def __init__(self, directory: Directory) -> None:
        self.uids: set[str] = set()
        self._directory = directory

    async def load(self) -> None:
        """Know those that have an address already."""
        agents = await self._directory.all()
        self.uids.update(agent.uid for agent in agents if agent.kind in OUTSIDE)

    async def meet(self, uid: str) -> bool:
        """Whether who connected as `uid` comes without the gateway; from now on it is known."""
        if uid in self.uids:
            return True
        if not is_uid(uid) or uid == CONTROL_PLANE:
            return True
        try:
            kind = (await self._directory.get(uid)).kind
        except NotFound:
            kind = ""  # there is a credential, so it may send
        if kind == BEHIND_THE_GATEWAY:
            return False
        self.uids.add(uid)
        return True
