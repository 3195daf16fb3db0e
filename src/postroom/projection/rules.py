"""Rules of the fold, applying all rules of a stream to some records, and records that no rule could fold.

A rule is a plain function of the store and a record: no clock, no bus. The rows depend on the log alone, so a
second fold gives the same rows. Agents may store anything, so a rule records or ignores a malformed record and does
not raise. A record on which one does is passed over so that those of others go on, and kept for a rebuild.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from postroom.bus.port import BusAdmin, Message
from postroom.errors import NotFound, PostroomError
from postroom.observe.supervision import guarded
from postroom.projection.changes import Change
from postroom.protocol.alerts import Alert
from postroom.store.database import Database, Store

Rule = Callable[[Store, Message], Sequence[Change]]
"""Folds one record; returns the changes, or nothing if the record does not count."""

Rules = Mapping[str, Sequence[Rule]]
"""Stream to its rules, in the order in which each record meets them, all in one transaction.

The streams of a rebuild are in this order, so a stream comes after those that it builds on.
"""

KIND = "record-passed-over"
"""Kind of the alert; its `about` is `<stream>/<sequence>`."""


class Early(Exception):
    """What a record builds on is not folded. The first rule of a stream may raise it, before it writes anything.

    The fold then waits for the streams before this one. Where those are folded, the record does not count.
    """


@dataclass(frozen=True, slots=True)
class Folded:
    """The result of a fold.

    Attributes:
        changes: for waiters, in the order of the streams.
        ignored: the number of records that had no effect.
        positions: stream to its cursor.
        early: stream to its first record that waits for other streams; from there on nothing of it is folded.
    """

    changes: tuple[Change, ...] = ()
    ignored: int = 0
    positions: Mapping[str, int] = field(default_factory=dict)
    early: Mapping[str, int] = field(default_factory=dict)


Waits = Callable[[str, Message, bool], bool]
"""Whether a record of a stream waits for other streams; the flag says that a rule found it early."""


def together(*parts: Rules) -> dict[str, tuple[Rule, ...]]:
    """The rules of several parts joined; those of an earlier part run first."""
    joined: dict[str, tuple[Rule, ...]] = {}
    for part in parts:
        for stream, rules in part.items():
            joined[stream] = (*joined.get(stream, ()), *rules)
    return joined


def fold(store: Store, rules: Rules, stream: str, batch: Sequence[Message]) -> Folded:
    """Fold the records of `stream` past its cursor, in their order, and move the cursor."""
    return fold_all(store, rules, {stream: batch})


def fold_all(
    store: Store,
    rules: Rules,
    batches: Mapping[str, Sequence[Message]],
    waits: Waits = lambda _stream, _record, _early: False,
) -> Folded:
    """Fold the records of several streams past their cursors, those of an earlier stream first; move the cursors."""
    changes: list[Change] = []
    positions: dict[str, int] = {}
    early: dict[str, int] = {}
    ignored = 0
    for stream in rules:
        if not batches.get(stream):
            continue
        position = before = store.cursor(stream)
        for record in batches[stream]:
            if record.sequence <= position:
                continue
            done = _fold_record(store, rules[stream], stream, record, waits)
            if done is None:
                early[stream] = record.sequence
                break
            ignored += not done
            changes += done
            position = record.sequence
        if position != before:
            store.set_cursor(stream, position)
        positions[stream] = position
    return Folded(tuple(changes), ignored, positions, early)


def fold_alone(store: Store, rules: Sequence[Rule], record: Message) -> None:
    """Fold one record without regard to cursors and other streams."""
    _fold_record(store, rules, "", record, lambda _stream, _record, _early: False)


def _fold_record(
    store: Store, rules: Sequence[Rule], stream: str, record: Message, waits: Waits
) -> list[Change] | None:
    """The changes by a record; None if it waits for other streams."""
    if waits(stream, record, False):
        return None
    changes: list[Change] = []
    for rule in rules:
        try:
            changes += rule(store, record)
        except Early:
            if waits(stream, record, True):
                return None
    return changes


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
