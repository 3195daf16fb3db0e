"""The tables in SurrealDB, and whose they are.

A list is a range of one key (`Range`), in the order of that key, with a limit: that is what the engine answers without
reading more. It reads an index forwards alone (2.0.0 gives wrong rows for a descending order with a limit), and sorts
all that an index of two fields has. So a row carries a key for each list, whose order is the order of the list.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from postroom.errors import Conflict
from postroom.store.ports import TaskEventRow, TaskRow
from postroom_a2a.surreal import Connection
from postroom_a2a.task_state import TaskState

TASKS, EVENTS, CURSORS, META = "a2a_tasks", "a2a_task_events", "a2a_cursors", "a2a_meta"

_TYPES = {"str": "string", "int": "int", "float": "float", "bool": "bool"}

END = 2**62
"""Above each sequence."""

TASK_KEYS = {
    "newest": "int",  # all, the newest request first
    "open_newest": "option<int>",  # the open ones
    "untaken": "option<int>",  # open ones that nobody has taken, in the order of their requests
    "open_in": "option<string>",  # the open ones in a state, in the order of their requests
    "open_of": "option<string>",  # a worker's open ones, in the order of their requests
    "of_worker": "string",  # a worker's, the newest request first
    "of_requester": "string",
    "retries": "option<string>",  # those that ask for another one again, in the order of their requests
    "changed": "string",  # all, the last changed first
    "changed_of_worker": "string",
    "changed_of_requester": "string",
}
"""The keys of the lists, each with an index."""

EVENT_KEYS = {
    "place": "string",  # a task's, in their order
    "first_of": "option<string>",  # the first of its task in its state
    "milestone": "option<int>",  # a task was taken, asks, or has ended
    "newest": "option<int>",  # the same, the newest first
}

_DIGITS = str.maketrans("0123456789abcdef", "fedcba9876543210")

Row = dict[str, Any]


def _columns(row: Any) -> dict[str, str]:
    return {field.name: _TYPES[str(field.type)] for field in fields(row) if field.name != "id"}


TASK_COLUMNS = _columns(TaskRow) | {"size": "int"} | TASK_KEYS
EVENT_COLUMNS = _columns(TaskEventRow) | {"snapshot": "string", "kept": "int"}
EVENT_COLUMNS |= {"size": "int"} | EVENT_KEYS
"""`size` has the bytes of the texts, `kept` those of a change's snapshot."""


def statements() -> str:
    """What makes the tables where they are missing."""
    lines = [*_table(TASKS, TASK_COLUMNS), *_table(EVENTS, EVENT_COLUMNS)]
    lines += _table(CURSORS, {"seq": "int"})
    lines += _table(META, {"shape": "string", "owner": "string", "writer": "string"})
    lines.append(_index(TASKS, "requested_seq", unique=True))
    lines += [_index(TASKS, key) for key in TASK_KEYS]
    lines.append(_index(EVENTS, "seq", unique=True))
    lines += [_index(EVENTS, key) for key in EVENT_KEYS]
    return ";\n".join(lines) + ";"


def _table(name: str, columns: dict[str, str]) -> list[str]:
    made = [f"DEFINE TABLE IF NOT EXISTS {name} SCHEMAFULL PERMISSIONS NONE"]
    return made + [
        f"DEFINE FIELD IF NOT EXISTS {column} ON {name} TYPE {kind}"
        for column, kind in columns.items()
    ]


def _index(table: str, key: str, *, unique: bool = False) -> str:
    made = f"DEFINE INDEX IF NOT EXISTS {table}_{key} ON {table} FIELDS {key}"
    return f"{made} UNIQUE" if unique else made


def shape() -> str:
    """Names these tables: another version of Postroom has others."""
    return hashlib.sha256(statements().encode()).hexdigest()[:32]


def prepare(connection: Connection, owner: str) -> bool:
    """Make the tables; they are of `owner` from then on. Those of another version are made anew and empty, since the
    next start loads the last snapshot and folds the log behind it; returns whether any were.

    Raises:
        Conflict: they are of another post room.
    """
    found = connection.rows(f"SELECT shape, owner FROM {META}:state") if exists(connection) else []
    if found and found[0]["owner"] != owner:
        raise Conflict(
            f"{connection.shown} has the tasks of another post room, or of one before a restore",
            remedy="name another database in tasks.store, or remove that one: tasks are folded again from the log",
        )
    if found and found[0]["shape"] == shape():
        return False
    # The cursors go first: whatever is left by a crash is folded again.
    for table in (CURSORS, TASKS, EVENTS):
        connection.run(f"REMOVE TABLE IF EXISTS {table}")
    connection.run(statements())
    connection.run(
        f"UPSERT {META}:state SET shape = $shape, owner = $owner, writer = ''",
        {"shape": shape(), "owner": owner},
    )
    return bool(found)


def exists(connection: Connection) -> bool:
    """Whether a post room has made its tables there."""
    return META in connection.run("INFO FOR DB")[0].get("tables", {})


def task_keys(row: Any) -> dict[str, Any]:
    """The keys of a task (a `TaskHead`, or what has its fields)."""
    seq, is_open = row.requested_seq, not row.final
    changed = changed_key(row.updated_at, row.id)
    return {
        "newest": -seq,
        "open_newest": -seq if is_open else None,
        "untaken": seq if is_open and not row.seq else None,
        "open_in": place(row.state, seq) if is_open else None,
        "open_of": place(row.worker, seq) if is_open else None,
        "of_worker": place(row.worker, END - seq),
        "of_requester": place(row.requester, END - seq),
        "retries": place(row.retry_of, seq) if row.retry_of else None,
        "changed": changed,
        "changed_of_worker": f"{row.worker}/{changed}",
        "changed_of_requester": f"{row.requester}/{changed}",
    }


def event_keys(row: TaskEventRow, *, first: bool) -> dict[str, Any]:
    """The keys of a change; `first`: it is the first of its task in its state."""
    shown = (
        first if row.state == TaskState.WORKING.value else row.state != TaskState.SUBMITTED.value
    )
    return {
        "place": place(row.task, row.seq),
        "first_of": f"{row.task}/{row.state}" if first else None,
        "milestone": row.seq if shown else None,
        "newest": -row.seq if shown else None,
    }


def place(name: str, number: int) -> str:
    """A key that sorts by `name`, then by a number from 0 to `END`."""
    return f"{name}/{number:019d}"


def within(name: str) -> tuple[str, str]:
    """The bounds of all keys of `name`, both outside."""
    return f"{name}/", f"{name}0"  # 0 is the sign after the slash


def changed_key(at: float, task: str) -> str:
    """A key that sorts by falling instants, then by falling ids."""
    (bits,) = struct.unpack(">q", struct.pack(">d", at))
    ordered = bits if bits >= 0 else -(2**63) - bits - 1  # floats sort like their bits
    return f"{2**64 - 1 - (ordered + 2**63):020d}{task.translate(_DIGITS)}"


@dataclass(frozen=True, slots=True)
class Only:
    """A condition, in the words of SurrealDB and in ours."""

    text: str
    holds: Callable[[Row], bool]
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Range:
    """The rows of a table whose `key` lies between two values, in its order.

    Attributes:
        among: field to the values that it may have.
        only: a further condition.
    """

    key: str
    low: Any
    high: Any
    among: Mapping[str, Collection[Any]] = field(default_factory=dict)
    only: Only | None = None

    def where(self, table: str) -> str:
        """The condition, with the index that has the order."""
        more = "".join(f" AND {name} IN ${name}" for name in self.among)
        more += f" AND {self.only.text}" if self.only else ""
        return f"{table} WITH INDEX {table}_{self.key} WHERE {self.key} > $low AND {self.key} < $high{more}"

    def values(self) -> dict[str, Any]:
        """The parameters of `where`."""
        among = {name: list(values) for name, values in self.among.items()}
        own = self.only.values if self.only else {}
        return {"low": self.low, "high": self.high, **among, **own}

    def holds(self, row: Row) -> bool:
        """Whether a row is in it."""
        at = row.get(self.key)
        if at is None or not self.low < at < self.high:
            return False
        if self.only is not None and not self.only.holds(row):
            return False
        return all(row[name] in values for name, values in self.among.items())
