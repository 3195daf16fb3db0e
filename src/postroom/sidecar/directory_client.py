"""Nicks to uids and back: asked of the control plane and kept for a minute."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from postroom.errors import InvalidInput, PostroomError, ProtocolViolation
from postroom.observe import get_logger
from postroom.protocol.ids import CONTROL_PLANE, UID, check_name, is_uid
from postroom.sidecar.adapters import Sender
from postroom.sidecar.bus import BusClient, ask_control

LIFETIME = 60.0
"""Seconds that an answer is kept: a nick may go to another agent."""

CAPACITY = 512

NAME_TIMEOUT = 2.0
"""Seconds that a message waits for its sender's nick, which is decoration: the uid counts."""

_log = get_logger(__name__)


class DirectoryClient:
    """The directory, as this worker may ask it."""

    def __init__(
        self, bus: BusClient, own: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._bus = bus
        self._own = own
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, Sender]] = OrderedDict()

    async def uid_of(self, address: str) -> str:
        """The uid behind `@nick`, or a uid as it is.

        Raises:
            UnknownRecipient: no agent has that nick.
        """
        if UID.fullmatch(address):
            return address
        if not address.startswith("@"):
            raise InvalidInput(f"{address[:80]!r} is not an address", remedy="use @nick or a uid")
        check_name(address[1:], "nick")
        return (await self._lookup(address)).uid

    async def describe(self, uid: str) -> Sender:
        """Nick and kind of `uid`; the uid alone if the control plane does not answer."""
        if uid == CONTROL_PLANE:
            return Sender(uid, CONTROL_PLANE, "service")
        try:
            return await self._lookup(uid, NAME_TIMEOUT)
        except PostroomError as error:
            _log.info("no name for %s: %s", uid, error)
            return Sender(uid)

    async def find(self, skill: str = "") -> list[dict[str, Any]]:
        """Agents with a card, of all skills or with `skill`; entries as the control plane gives them."""
        answer = await ask_control(self._bus, self._own, "cards.find", {"skill": skill})
        found = answer.get("agents")
        if not isinstance(found, list):
            raise ProtocolViolation("the control plane's answer lists no agents")
        return found

    async def thread(self, thread: str) -> list[dict[str, Any]]:
        """The newest messages of a conversation that this worker sent or got, oldest first.

        Raises:
            PostroomError: the control plane cannot be asked.
        """
        answer = await ask_control(self._bus, self._own, "messages.thread", {"thread": thread})
        found = answer.get("messages")
        if not isinstance(found, list):
            raise ProtocolViolation("the control plane's answer lists no messages")
        return found

    async def entry(self, ref: str) -> dict[str, Any]:
        """The control plane's entry of the agent at `@nick` or a uid, with its card.

        Raises:
            NotFound: no such agent, or it has no card.
        """
        return await ask_control(self._bus, self._own, "cards.get", {"ref": ref})

    async def _lookup(self, ref: str, timeout: float = 5.0) -> Sender:
        kept = self._known.get(ref)
        if kept is not None and self._clock() - kept[0] < LIFETIME:
            return kept[1]
        answer = await ask_control(
            self._bus, self._own, "agents.resolve", {"ref": ref}, timeout=timeout
        )
        found = Sender(str(answer.get("uid")), str(answer.get("nick")), str(answer.get("kind")))
        if not is_uid(found.uid) or (not ref.startswith("@") and found.uid != ref):
            raise ProtocolViolation(f"the control plane's answer names no agent for {ref}")
        self._known[ref] = (self._clock(), found)
        self._known.move_to_end(ref)
        while len(self._known) > CAPACITY:
            self._known.popitem(last=False)
        return found
