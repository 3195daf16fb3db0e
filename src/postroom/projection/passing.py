"""Records that no rule could fold: they are passed over so that those of others go on, and kept for a rebuild."""

from __future__ import annotations

from collections.abc import Callable

from postroom.bus.port import BusAdmin, Message
from postroom.errors import NotFound, PostroomError
from postroom.observe.supervision import guarded
from postroom.projection.rules import Rules, fold, fold_alone
from postroom.protocol.alerts import Alert
from postroom.store.database import Database, Store

KIND = "record-passed-over"
"""Kind of the alert; its `about` is `<stream>/<sequence>`."""


def passed_over(stream: str, sequence: int, error: Exception) -> Alert:
    """The alert about such a record."""
    text = (
        f"record {sequence} of {stream} could not be folded, and what it says is not shown:"
        f" {type(error).__name__}; after an update: postroom admin rebuild"
    )
    return Alert(KIND, text, about=f"{stream}/{sequence}")


def begets(stream: str, record: Message) -> bool:
    """Whether an alert about this record might be such a record again, and so on for ever."""
    return stream == "ALERTS" and KIND.encode() in record.payload


def left_out(error: Exception) -> Alert:
    """The alert about what follows from a record and could not be done."""
    text = (
        f"what follows from a record of the log could not be done: {type(error).__name__} (control.log has more);"
        " a start of the post room tries it again"
    )
    return Alert(KIND, text, about=f"what follows/{type(error).__name__}")


def pass_over(stream: str, sequence: int, store: Store) -> None:
    """Go on behind such a record, and keep its sequence."""
    store.records.pass_over(stream, sequence)
    store.set_cursor(stream, sequence)


async def nobody(_: Alert) -> None:
    """Tells nobody."""


async def fold_each(database: Database, rules: Rules, stream: str, batch: list[Message]) -> None:
    """Fold records in their order; those that no rule can fold are passed over."""
    failure = f"records of {stream} could not be folded together"
    with guarded(failure, fatal=(PostroomError,)) as guard:
        await database.write(lambda store: fold(store, rules, stream, batch), accounts=False)
    if guard.error is None:
        return
    for record in batch:
        if not await _may(database, lambda store, one=record: fold(store, rules, stream, [one])):
            await database.write(
                lambda store, seq=record.sequence: pass_over(stream, seq, store), accounts=False
            )


async def fold_passed_over(database: Database, admin: BusAdmin, rules: Rules, stream: str) -> None:
    """Fold what earlier rules could not; what still cannot be folded stays as it is."""
    for sequence in await database.read(lambda store: store.records.passed_over(stream)):
        try:
            record = await admin.get(stream, sequence)
        except NotFound:
            record = None

        def again(store: Store, seq: int = sequence, found: Message | None = record) -> None:
            if found is not None:
                fold_alone(store, rules[stream], found)
            store.records.was_folded(stream, seq)

        await _may(database, again)


async def _may(database: Database, work: Callable[[Store], object]) -> bool:
    with guarded("a record could not be folded", fatal=(PostroomError,)) as guard:
        await database.write(work, accounts=False)
    return guard.error is None
