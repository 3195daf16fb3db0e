"""The registry of Agent Cards for programs that use the SDK, with cards that A2A 1.0 and 0.3 can read."""

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
from postroom_a2a.sdk.translation.values import MalformedObject

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
    """Open the registry of Agent Cards in a bucket; the other options are those of `Registry`.

    Args:
        create: make a missing bucket; False to fail.

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
    """The card as JSON of 1.0; with an interface of 0.3, also with the members of 0.3."""
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
        ProtocolViolation: `record` is not a card.
    """
    try:
        if "supportedInterfaces" in record or "supported_interfaces" in record:
            return ParseDict(record, types.AgentCard(), ignore_unknown_fields=True)
        return cards03.read_card(record)
    except (MalformedObject, ParseError, ValueError, RecursionError) as error:
        raise ProtocolViolation(f"the registered record is not an agent card: {error}") from error


CODEC: Codec[types.AgentCard] = Codec(write_card, read_card)


def _merged(record: Any, legacy: Any) -> Any:
    """`record`, with further members of `legacy`."""
    if isinstance(record, dict) and isinstance(legacy, dict):
        both = {name: _merged(record[name], legacy[name]) for name in record.keys() & legacy.keys()}
        return {**record, **both, **{k: v for k, v in legacy.items() if k not in record}}
    if isinstance(record, list) and isinstance(legacy, list):
        pairs = [_merged(one, other) for one, other in zip(record, legacy, strict=False)]
        return [*pairs, *record[len(pairs) :]]
    return record


__all__ = ["CODEC", "CardRegistry", "open_registry", "read_card", "write_card"]
