"""The registry of Agent Cards for programs that use the SDK: what is written is read by A2A 1.0 and by 0.3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError

from a2a import types
from postroom_a2a.binding.subjects import NAMESPACE
from postroom_a2a.errors import ProtocolViolation
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.kv import BucketSettings
from postroom_a2a.nats.mailbox import Mailbox
from postroom_a2a.nats.port import Connection
from postroom_a2a.registry import BUCKET, TTL, Codec, Record, Registry
from postroom_a2a.rpc import Code, RpcError
from postroom_a2a.sdk.translation import cards03
from postroom_a2a.sdk.translation.values import Malformed

CardRegistry = Registry[types.AgentCard]


async def open_registry(
    connection: Connection | JetStream,
    *,
    bucket: str = BUCKET,
    settings: BucketSettings | None = None,
    create: bool = True,
    namespace: str = NAMESPACE,
    ttl: float = TTL,
    compatible: bool = False,
    on_error: Callable[[Exception], None] | None = None,
) -> CardRegistry:
    """The registry of Agent Cards that is seen through a connection.

    Args:
        connection: to NATS, or JetStream as one sees it.
        bucket: name of the bucket, which is made if it is not there.
        create: False to fail where there is none.
        ttl: seconds after which a card goes that is not refreshed; 0 for cards that stay.
        compatible: take ids and namespaces that the token rule changes, as the TypeScript package does.
        on_error: called with what went wrong where no call waits for it; logged if there is none.

    Raises:
        As `Registry.open`.
    """
    js = connection if isinstance(connection, JetStream) else JetStream(Mailbox(connection))
    return await Registry.open(
        js,
        CODEC,
        bucket=bucket,
        settings=settings,
        create=create,
        namespace=namespace,
        ttl=ttl,
        compatible=compatible,
        on_error=on_error,
    )


def write_card(card: types.AgentCard) -> Record:
    """The card as 1.0 has it, with the members of 0.3 beside them where it has an interface of 0.3."""
    record = MessageToDict(card)
    try:
        legacy = cards03.write_card(card)
    except RpcError as error:
        if error.code is not Code.VERSION_NOT_SUPPORTED:
            raise
        return record
    return _merged(record, legacy)


def read_card(record: Record) -> types.AgentCard:
    """The card, of either version.

    Raises:
        ProtocolViolation: it is not one.
    """
    try:
        if "supportedInterfaces" in record or "supported_interfaces" in record:
            return ParseDict(record, types.AgentCard(), ignore_unknown_fields=True)
        return cards03.read_card(record)
    except (Malformed, ParseError, ValueError, RecursionError) as error:
        raise ProtocolViolation(f"what is registered is no agent card: {error}") from error


CODEC: Codec[types.AgentCard] = Codec(write_card, read_card)


def _merged(record: Any, legacy: Any) -> Any:
    """`record` with what `legacy` has besides."""
    if isinstance(record, dict) and isinstance(legacy, dict):
        both = {name: _merged(record[name], legacy[name]) for name in record.keys() & legacy.keys()}
        return {**record, **both, **{k: v for k, v in legacy.items() if k not in record}}
    if isinstance(record, list) and isinstance(legacy, list):
        pairs = [_merged(one, other) for one, other in zip(record, legacy, strict=False)]
        return [*pairs, *record[len(pairs) :]]
    return record


__all__ = ["CODEC", "CardRegistry", "open_registry", "read_card", "write_card"]
