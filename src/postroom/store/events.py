"""What agents do: events of workers as rows of the projection, and what is summed of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from sqlalchemy import bindparam, func, literal_column, select

from postroom.protocol import shapes
from postroom.store.messages import page
from postroom.store.schema import sdk_events
from postroom.store.session import Session, insert_new, prepared, values_of

LAST = 2**62
"""Past the id of every event."""


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event.

    Attributes:
        id: `protocol.events.event_id` of its record and its place there.
        worker: uid.
        run: of its sidecar; "" for an event of the control plane.
        number: in that run; for an event of the control plane its id.
        kind: an `EventKind`.
        task, message: what the turn is for, as the worker says; "" for nothing.
        request: id of the approval that it is about, "" for none (`store.approvals`).
        tokens_in, tokens_out, cost: of a `usage` event; cost in USD.
        event: JSON.
        at: when it was stored.
    """

    id: int
    worker: str
    run: str
    number: int
    kind: str
    task: str
    message: str
    request: str
    tokens_in: int
    tokens_out: int
    cost: float
    event: str
    at: float


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that went into models and came out of them, and what they cost in USD, as agents said."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0

    def as_json(self) -> shapes.Usage:
        """Shape of the API."""
        return {
            # The sums of PostgreSQL are no plain numbers.
            "input_tokens": int(self.input_tokens),
            "output_tokens": int(self.output_tokens),
            "cost": round(float(self.cost), 6),
        }


_ROW = [sdk_events.c[field.name] for field in fields(EventRow)]
_SUMS = (
    func.coalesce(func.sum(sdk_events.c.tokens_in), 0),
    func.coalesce(func.sum(sdk_events.c.tokens_out), 0),
    func.coalesce(func.sum(sdk_events.c.cost), 0.0),
)

LAST = 2**63 - 1
"""No event has a larger id."""

_NEW = insert_new(sdk_events)
_OF_RUN = (
    sdk_events.c.worker == bindparam("worker"),
    sdk_events.c.run == bindparam("run"),
)
_AMONG = (
    *_OF_RUN,
    sdk_events.c.number >= bindparam("least"),
    sdk_events.c.number < bindparam("past"),
)
_KNOWN = prepared(select(sdk_events.c.number).where(*_AMONG))
_IDS = prepared(select(sdk_events.c.id).where(*_AMONG).order_by(sdk_events.c.number))
_LAST_NUMBER = prepared(select(func.max(sdk_events.c.number)).where(*_OF_RUN))
_OF = select(*_ROW).where(sdk_events.c.worker == bindparam("worker")).limit(bindparam("most"))
_PAST = prepared(_OF.where(sdk_events.c.id > bindparam("after")).order_by(sdk_events.c.id))
_NEWEST = prepared(
    _OF.where(sdk_events.c.id < bindparam("before")).order_by(sdk_events.c.id.desc())
)
_LAST_ID = prepared(
    select(func.max(sdk_events.c.id)).where(sdk_events.c.worker == bindparam("worker"))
)
_OF_TASK = prepared(
    # The index is partial.
    select(*_ROW)
    .where(
        sdk_events.c.task == bindparam("task"),
        sdk_events.c.task != "",
        sdk_events.c.worker == bindparam("worker"),
        sdk_events.c.id > bindparam("after"),
    )
    .order_by(sdk_events.c.id)
    .limit(bindparam("most"))
)
# As the partial index says it.
_IS_USAGE = sdk_events.c.kind == literal_column("'usage'")
_USAGE = select(*_SUMS).where(_IS_USAGE)
_USAGE_OF_WORKER = prepared(_USAGE.where(sdk_events.c.worker == bindparam("worker")))
_USAGE_OF_TASK = prepared(
    _USAGE.where(
        sdk_events.c.task == bindparam("task"),
        sdk_events.c.task != "",
        sdk_events.c.worker == bindparam("worker"),
    )
)
_USAGE_OF_ALL = prepared(
    select(sdk_events.c.worker, *_SUMS).where(_IS_USAGE).group_by(sdk_events.c.worker)
)


class EventStore:
    """Events of workers. A worker may name tasks that are not its own, so each question names the worker, too."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def known(self, worker: str, run: str, first: int, count: int) -> set[int]:
        """The numbers of that run from `first` on, among `count`, that are stored."""
        return set(
            self._session.column(_KNOWN, worker=worker, run=run, least=first, past=first + count)
        )

    def ids(self, worker: str, run: str, first: int, count: int) -> list[int]:
        """The ids of those that `known` finds, in the order of their numbers."""
        return list(
            self._session.column(_IDS, worker=worker, run=run, least=first, past=first + count)
        )

    def last_number(self, worker: str, run: str) -> int:
        """The highest number of that run that is stored, 0 for none."""
        return self._session.scalar(_LAST_NUMBER, worker=worker, run=run) or 0

    def insert(self, rows: Sequence[EventRow]) -> None:
        """Store events; those that are there stay as they are."""
        self._session.run_many(_NEW, [values_of(row) for row in rows])

    def past(self, worker: str, after: int, limit: int) -> list[EventRow]:
        """The first events of a worker past the id `after`, oldest first."""
        return self._session.all(EventRow, _PAST, worker=worker, after=after, most=page(limit))

    def newest(self, worker: str, limit: int, before: int = 0) -> list[EventRow]:
        """The last events of a worker, oldest first; of those before the id `before` unless it is 0."""
        before = before or LAST
        found = self._session.all(EventRow, _NEWEST, worker=worker, before=before, most=page(limit))
        return found[::-1]

    def last_id(self, worker: str) -> int:
        """The id of a worker's last event, 0 for none."""
        return self._session.scalar(_LAST_ID, worker=worker) or 0

    def of_task(self, worker: str, task: str, after: int, limit: int) -> list[EventRow]:
        """The first events past `after` that a worker ascribes to one of its tasks, oldest first."""
        return self._session.all(
            EventRow, _OF_TASK, worker=worker, task=task, after=after, most=page(limit)
        )

    def usage_of_worker(self, worker: str) -> Usage:
        """What a worker has used in all."""
        return self._session.first(Usage, _USAGE_OF_WORKER, worker=worker) or Usage()

    def usage_of_task(self, worker: str, task: str) -> Usage:
        """What a worker has used for one of its tasks."""
        return self._session.first(Usage, _USAGE_OF_TASK, worker=worker, task=task) or Usage()

    def usage_of_workers(self) -> dict[str, Usage]:
        """What each worker has used, by its uid."""
        return {uid: Usage(*sums) for uid, *sums in self._session.rows(_USAGE_OF_ALL)}
