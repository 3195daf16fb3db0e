"""The binding in the SDK's `ClientFactory`: after `register`, it makes clients for cards with a NATS interface."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from a2a.client import ClientConfig, ClientFactory
from a2a.utils.constants import TransportProtocol

from a2a import types
from postroom_a2a.binding.subjects import (
    BINDINGS,
    CORE,
    CORE_BINARY,
    DURABLE_BINARY,
    SENDER_TOKEN,
    subject_of,
)
from postroom_a2a.durable.answer_reader import AnswerReader, shared
from postroom_a2a.durable.client import DurableCaller
from postroom_a2a.durable.streams import namespace_of
from postroom_a2a.errors import InvalidInput
from postroom_a2a.live.calling import RETRY, Caller, CoreCaller, RetryingCaller, reply_prefix
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.retry import RetryPolicy
from postroom_a2a.sdk.translation import V03, V10
from postroom_a2a.sdk.transport import TIMEOUT, NatsA2ATransport

if TYPE_CHECKING:
    from postroom_a2a.nats.port import Connection
    from postroom_a2a.sdk.references import LargeContent


def register(
    factory: ClientFactory | ClientConfig,
    connection: Connection,
    *,
    sender: str = "",
    timeout: float = TIMEOUT,
    cancel_abandoned: bool = False,
    compatible: bool = False,
    content: LargeContent | None = None,
    durable: Callable[[str], Caller] | None = None,
    retry: RetryPolicy = RETRY,
) -> ClientFactory:
    """Register every form of this binding at a client factory, and return the factory.

    Clients of one connection share their subscriptions for answers; closing a client leaves the connection open.

    Args:
        factory: or the configuration to make one with; ours become the last of its bindings.
        connection: an open one, ours or of nats-py.
        sender: token of this caller, for agents whose card has the extension `urn:postroom:a2a:sender-token:1`.
        timeout: seconds for an answer, and for the first frame of a stream.
        cancel_abandoned: cancel the task of a streamed message whose reader stops before its end.
        compatible: take any subject from a URL, as the wire `a2a-nats/1` does, even one that no call can go to.
        content: fetches large content that agents send by reference; None for no references.
        durable: makes the caller of a request subject; None for `DurableCaller` with its defaults.
        retry: repeats a call, within its time, while the server is busy.
    """
    config = factory if isinstance(factory, ClientConfig) else factory._config  # noqa: SLF001 (it has no other door)
    offered = config.supported_protocol_bindings
    if not offered:  # empty means the SDK's default, which naming ours must not take away
        offered.append(TransportProtocol.JSONRPC)
    offered.extend(label for label in BINDINGS if label not in offered)
    if isinstance(factory, ClientConfig):
        factory = ClientFactory(config)
    common = shared(connection)

    def mailbox(prefix: str = "") -> Mailbox:
        if prefix not in common.mailboxes:
            common.mailboxes[prefix] = Mailbox(connection, prefix=prefix)
        return common.mailboxes[prefix]

    def core(card: types.AgentCard, subject: str) -> Caller:
        own = _sender(card, sender)
        prefix = reply_prefix(subject, own)
        return CoreCaller(connection, subject, mailbox=mailbox(prefix), sender=own)

    def stored(_: types.AgentCard, subject: str) -> Caller:
        if durable is not None:
            return durable(subject)
        namespace = namespace_of(subject)
        if namespace not in common.responses:
            common.responses[namespace] = AnswerReader(
                connection, namespace=namespace, mailbox=mailbox()
            )
        return DurableCaller(connection, subject, responses=common.responses[namespace])

    for label in BINDINGS:
        make = core if label in {CORE, CORE_BINARY} else stored

        def produce(
            card: types.AgentCard,
            url: str,
            _: ClientConfig,
            *,
            label: str = label,
            make: Callable[[types.AgentCard, str], Caller] = make,
        ) -> NatsA2ATransport:
            binary = label in {CORE_BINARY, DURABLE_BINARY}
            legacy = not binary and _is_legacy(card, label, url)
            return NatsA2ATransport(
                RetryingCaller(make(card, subject_of(url, compatible=compatible)), retry),
                card,
                dialect=V03 if legacy else V10,
                binary=binary,
                timeout=timeout,
                cancel_abandoned=cancel_abandoned,
                content=content,
            )

        factory.register(label, produce)
    return factory


def _is_legacy(card: types.AgentCard, label: str, url: str) -> bool:
    """Whether the interface is of 0.3 only; one without a version counts as 1.0."""
    versions = {
        interface.protocol_version
        for interface in card.supported_interfaces
        if interface.protocol_binding == label and interface.url == url
    }
    return bool(versions) and all(version.startswith("0.") for version in versions)


def _sender(card: types.AgentCard, sender: str) -> str:
    """The token to append for this card, "" for none."""
    for extension in card.capabilities.extensions:
        if extension.uri == SENDER_TOKEN:
            if extension.required and not sender:
                raise InvalidInput(
                    f"{card.name!r} takes calls only from a caller with a sender token: give `sender`"
                )
            return sender
    return ""
