"""What the agent is told beside messages: what became of its own ones, and posts of its projects' feeds.

Neither is ever lost by the log, but neither waits for the agent's confirmation: an agent that was down when a
notice came asks for the history.
"""

from __future__ import annotations

from postroom.bus.port import Delivery
from postroom.errors import InvalidInput, ProtocolViolation
from postroom.observe import get_logger
from postroom.protocol import subjects
from postroom.protocol.envelope import Envelope
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.receipts import Receipt, State, may_set
from postroom.sidecar.adapters import Incoming
from postroom.sidecar.agent import AgentGone, AgentProgram
from postroom.sidecar.directory_client import DirectoryClient
from postroom.sidecar.outgoing import Outgoing
from postroom_a2a.messages import text_of
from postroom_a2a.times import format_time

TOLD = frozenset({State.ANSWERED, State.DEAD})
"""States of its own messages that the agent is told: the ones after which nothing comes. Of another it is told only if
there is a reason why a message stays there."""

_log = get_logger(__name__)


class Notices:
    """Hands receipts and posts to the agent of one worker."""

    def __init__(
        self, agent: AgentProgram, directory: DirectoryClient, outgoing: Outgoing, own: str
    ) -> None:
        self._agent = agent
        self._directory = directory
        self._outgoing = outgoing
        self._own = own

    async def take_receipt(self, delivery: Delivery) -> None:
        """Tell the agent if one of its messages was answered, is dead, or stays unconfirmed."""
        try:
            receipt = Receipt.decode(delivery.message.payload)
        except ProtocolViolation as error:
            _log.info("a receipt was ignored: %s", error)
            await delivery.ack()
            return
        session = self._agent.session
        tells = receipt.state in TOLD or receipt.reason
        if tells and session and self._believed(delivery, receipt):
            record = {"type": "receipt", "id": receipt.message_id, "state": receipt.state.value}
            session.tell(record | ({"reason": receipt.reason} if receipt.reason else {}))
        await delivery.ack()

    def _believed(self, delivery: Delivery, receipt: Receipt) -> bool:
        """Whether whoever set it may: the control plane, or the one whom our message went to."""
        setter = delivery.message.sender_uid
        if setter == CONTROL_PLANE:
            return True
        recipient = self._outgoing.recipient_of(receipt.message_id)
        return bool(recipient) and may_set(setter, recipient, CONTROL_PLANE)

    async def take_post(self, delivery: Delivery) -> None:
        """Hand a post of somebody else to the agent."""
        message = delivery.message
        try:
            project = subjects.parse(message.subject).project
            envelope = Envelope.decode(message.payload)
        except (ProtocolViolation, InvalidInput) as error:
            _log.info("a post was ignored: %s", error)
            await delivery.ack()
            return
        if message.sender_uid != self._own:
            sender = await self._directory.describe(message.sender_uid)
            post = Incoming(
                id=envelope.id,
                sender=sender,
                to=f"#{project}",
                text=text_of(envelope.message),
                sent_at=format_time(envelope.sent_at),
            )
            try:
                session = await self._agent.running()
                await session.hand_over(post)
            except (AgentGone, BrokenPipeError):
                _log.info("the agent ended before it read the post %s", envelope.id)
        await delivery.ack()
