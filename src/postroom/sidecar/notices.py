"""Records beside messages: receipts of the agent's own messages, and posts of its projects' feeds.

The log loses neither, but neither waits for the agent's confirmation: an agent that was down when a notice came asks
for the history.
"""

from __future__ import annotations

from postroom.bus.port import Delivery
from postroom.errors import InvalidInput, ProtocolViolation
from postroom.observe import get_logger
from postroom.protocol import subjects
from postroom.protocol.content import subject_of
from postroom.protocol.envelope import Envelope
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.receipts import Receipt, State, may_set
from postroom.protocol.traces import trace_of
from postroom.sidecar.adapters import Incoming, said_in
from postroom.sidecar.agent import AgentGone, AgentProgram
from postroom.sidecar.directory_client import DirectoryClient
from postroom.sidecar.outgoing import Outgoing
from postroom_a2a.messages import context_of
from postroom_a2a.times import format_time

REPORTED = frozenset({State.ANSWERED, State.DEAD})
"""The final states, which the agent is told of its own messages; of other states it is told only with a reason."""

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
        reported = receipt.state in REPORTED or receipt.reason
        if reported and session and self._believed(delivery, receipt):
            record = {"type": "receipt", "id": receipt.message_id, "state": receipt.state.value}
            session.tell(record | ({"reason": receipt.reason} if receipt.reason else {}))
        await delivery.ack()

    def _believed(self, delivery: Delivery, receipt: Receipt) -> bool:
        """Whether its sender may set it: the control plane, or the recipient of our message."""
        setter = delivery.message.sender_uid
        if setter == CONTROL_PLANE:
            return True
        recipient = self._outgoing.recipient_of(receipt.message_id)
        return bool(recipient) and may_set(setter, recipient, CONTROL_PLANE)

    async def take_post(self, delivery: Delivery) -> None:
        """Hand a post of another agent to this one."""
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
            text, parts = said_in(envelope.message)
            post = Incoming(
                id=envelope.id,
                sender=sender,
                to=f"#{project}",
                text=text,
                sent_at=format_time(envelope.sent_at),
                parts=parts,
                subject=subject_of(envelope.message),
                thread=context_of(envelope.message),
                trace=trace_of(envelope.message),
            )
            try:
                session = await self._agent.running()
                await session.hand_over(post)
            except (AgentGone, BrokenPipeError):
                _log.info("the agent ended before it read the post %s", envelope.id)
        await delivery.ack()
