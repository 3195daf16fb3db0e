"""Rules of the fold, and applying all rules of a stream to some records.

A rule is a plain function of a connection and a record: no clock, no bus. The rows depend on the log alone, so a
second fold gives the same rows. Agents may store anything, so a rule records or ignores a malformed record and does
not raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from postroom.bus.port import Message
from postroom.projection.changes import Change
from postroom.store.database import Store

Rule = Callable[[Store, Message], Sequence[Change]]
"""Folds one record; returns the changes, or nothing if the record does not count."""

Rules = Mapping[str, Sequence[Rule]]
"""Stream to its rules, in the order in which each record meets them, all in one transaction.

The streams of a rebuild are in this order, so a stream comes after those that it builds on.
"""


@dataclass(frozen=True, slots=True)
class Folded:
    """The result of a fold: the changes for waiters, and how many records had no effect."""

    changes: tuple[Change, ...]
    ignored: int


def together(*parts: Rules) -> dict[str, tuple[Rule, ...]]:
    """The rules of several parts joined; those of an earlier part run first."""
    joined: dict[str, tuple[Rule, ...]] = {}
    for part in parts:
        for stream, rules in part.items():
            joined[stream] = (*joined.get(stream, ()), *rules)
    return joined


def fold(store: Store, rules: Rules, stream: str, batch: Sequence[Message]) -> Folded:
    """Fold the records of `stream` past its cursor, in their order, and move the cursor."""
    position = store.cursor(stream)
    changes: list[Change] = []
    ignored = 0
    for record in batch:
        if record.sequence <= position:
            continue
        done = [change for rule in rules[stream] for change in rule(store, record)]
        ignored += not done
        changes += done
        position = record.sequence
    store.set_cursor(stream, position)
    return Folded(tuple(changes), ignored)
