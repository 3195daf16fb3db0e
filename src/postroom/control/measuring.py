"""What `/metrics` shows: the counters of the process, and what was read of each organisation a moment ago.

A value that only the database or the log has is read when somebody asks, at most every `FRESH` seconds however often
that is: for each organisation in one view of the database and one question to the server. What cannot be read is left
out; `postroom_scrape_failures_total` counts it.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from postroom import __version__
from postroom.bus.supervisor import Supervisor
from postroom.control.app import Installation
from postroom.control.event_loop import HELD
from postroom.control.parts import Parts
from postroom.errors import PostroomError
from postroom.observe.metrics import COUNTER, GAUGE, Family, Labels, gauge, process, text
from postroom.protocol.receipts import State
from postroom.protocol.streams import BY_NAME
from postroom.store.database import Store
from postroom_a2a.task_state import TERMINAL, TaskState

FRESH = 3.0
"""Seconds for which what was read of an organisation is shown again."""

READ_TIMEOUT = 5.0
"""Seconds that reading of one organisation may take."""

_ORG = ("org",)
_ORG_STATE = ("org", "state")
_ORG_STREAM = ("org", "stream")


# A state that nothing is in is shown, too: nobody can tell 0 from what was not read otherwise.
_MESSAGES = {state.value: 0 for state in (State.ACCEPTED, State.DELIVERED, State.SEEN)}
_TASKS = {state.value: 0 for state in TaskState if state not in TERMINAL}
_CHANGES: tuple[tuple[str, str, str, dict[str, int]], ...] = (
    (
        "mail",
        "postroom_messages_total",
        "Messages and requests that were folded, by their first state.",
        {State.ACCEPTED.value: 0},
    ),
    (
        "receipt",
        "postroom_receipts_total",
        "Changes of messages, by the state that they got.",
        {state.value: 0 for state in State if state is not State.ACCEPTED},
    ),
    (
        "task",
        "postroom_task_changes_total",
        "Records of tasks, by the state that they left the task in.",
        {state.value: 0 for state in TaskState},
    ),
)

LIMITS = (
    *("requests", "strangers", "streams", "bodies", "tasks", "keys"),
    *("pair", "pair-size", "waiting"),
)
"""The limits of callers, by which refused requests are counted."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """What one view of the database says."""

    messages: Mapping[str, int]
    tasks: Mapping[str, int]
    dead_letters: int
    approvals: int


@dataclass(frozen=True, slots=True)
class _Read:
    """What was read of one organisation.

    Attributes:
        streams: the server's own words of each stream, by its name; None where the bus does not answer.
        stored: None where the database does not answer.
    """

    at: float
    streams: Mapping[str, Mapping[str, Any]] | None
    stored: _Stored | None
    states: Mapping[str, int]


def _stored(store: Store) -> _Stored:
    return _Stored(
        store.pending.states(),
        store.tasks.states(),
        store.records.count_dead_letters(),
        store.approvals.count_pending(),
    )


@dataclass(slots=True)
class Measuring:
    """The metrics of a post room, as text.

    Args:
        opened: the organisations that are open.
    """

    installation: Installation
    opened: Callable[[], Iterable[Parts]]
    clock: Callable[[], float] = time.time
    _kept: dict[str, _Read] = field(default_factory=dict)
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def text(self) -> str:
        """All metrics, as Prometheus reads them."""
        orgs = {parts.trust.org: parts for parts in self.opened()}
        async with (
            self._reading
        ):  # of two who ask at once the second is shown what the first has read
            self._kept = {org: self._kept[org] for org in orgs if org in self._kept}
            old = [org for org in orgs if not self._fresh(self._kept.get(org))]
            read = await asyncio.gather(*(self._read(orgs[org]) for org in old))
            self._kept |= zip(old, read, strict=True)
            kept = dict(self._kept)
        families = [*process(), *self._of_installation(), *self.installation.metrics.families()]
        for org, parts in orgs.items():
            families += _of_process(org, parts)
            families += self._of_read(org, parts, kept[org])
        return text(families)

    # ── reading ─────────────────────────────────────────────────────────────────────────────────────────

    def _fresh(self, known: _Read | None) -> bool:
        return known is not None and 0 <= self.clock() - known.at < FRESH

    async def _read(self, parts: Parts) -> _Read:
        failures = self.installation.metrics.counter(
            "postroom_scrape_failures_total",
            "Readings for metrics that failed, by what did not answer.",
            "source",
        )
        streams, stored, states = None, None, {}
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                stored = await parts.database.read(_stored)
                states = await _workers(parts)
        except (PostroomError, TimeoutError):
            failures.add("database")
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                listed = await parts.admin.jetstream.api("STREAM.LIST", timeout=READ_TIMEOUT)
            streams = {each["config"]["name"]: each["state"] for each in listed["streams"] or ()}
        except (PostroomError, TimeoutError, KeyError, TypeError):
            failures.add("bus")
        return _Read(self.clock(), streams, stored, states)

    # ── the installation ────────────────────────────────────────────────────────────────────────────────

    def _of_installation(self) -> list[Family]:
        shared = self.installation
        gateway, limits = shared.gateway.statistics(), shared.in_flight.limits
        host = shared.host
        restarts = float(host.restarts) if isinstance(host, Supervisor) else None
        version: Mapping[Labels, float] = {(__version__, host.version): 1}
        refused: dict[Labels, float] = dict.fromkeys([(each,) for each in LIMITS], 0.0)
        refused |= {(limit,): float(count) for limit, count in limits.refused.items()}
        return [
            Family("postroom_info", GAUGE, "Always 1; the versions.", ("version", "nats"), version),
            _count(
                "postroom_nats_restarts_total", "Starts of nats-server after a crash.", restarts
            ),
            gauge(
                "postroom_disk_free_bytes",
                "Bytes that are free where the state folder is.",
                self._free(),
            ),
            gauge(
                "postroom_loop_held_seconds",
                "Longest time in the last minute or two for which one piece of work kept all others waiting.",
                HELD.longest,
            ),
            gauge("postroom_gateway_doors", "Doors of workers that are open.", gateway.doors),
            gauge(
                "postroom_gateway_connections",
                "Open connections of workers.",
                gateway.open_connections,
            ),
            _count(
                "postroom_gateway_accepted_total",
                "Connections of workers that were let in.",
                gateway.accepted,
            ),
            _count(
                "postroom_gateway_refused_total",
                "Connections at doors that were refused.",
                gateway.refused,
            ),
            _count(
                "postroom_gateway_violations_total",
                "Times a worker tried what it may not do.",
                gateway.violations,
            ),
            _count(
                "postroom_gateway_frames_total",
                "Frames of workers, as their rate counts them.",
                gateway.frames,
            ),
            _count("postroom_gateway_bytes_total", "Bytes of workers for the bus.", gateway.bytes),
            gauge(
                "postroom_http_streams",
                "Streams of events and WebSockets of API keys that are open.",
                limits.streams,
            ),
            Family(
                "postroom_http_refused_total",
                COUNTER,
                "Requests over a limit of callers, by the limit.",
                ("limit",),
                refused,
            ),
            gauge(
                "postroom_audit_failing",
                "1 while the audit log cannot be written.",
                float(bool(shared.audit.trouble)),
            ),
        ]

    def _free(self) -> float | None:
        try:
            return float(shutil.disk_usage(self.installation.settings.state).free)
        except OSError:
            return None

    # ── an organisation ─────────────────────────────────────────────────────────────────────────────────

    def _of_read(self, org: str, parts: Parts, read: _Read) -> Iterable[Family]:
        yield _by(
            "postroom_workers",
            "Workers by what the control plane knows of their sandbox.",
            org,
            _ORG_STATE,
            read.states,
        )
        if (stored := read.stored) is not None:
            yield _by(
                "postroom_messages_open",
                "Messages without a final state.",
                org,
                _ORG_STATE,
                {**_MESSAGES, **stored.messages},
            )
            yield _by(
                "postroom_tasks_open",
                "Tasks that have not ended.",
                org,
                _ORG_STATE,
                {**_TASKS, **stored.tasks},
            )
            yield _one("postroom_dead_letters", "Dead letters that wait.", org, stored.dead_letters)
            yield _one("postroom_approvals_pending", "Approvals that wait.", org, stored.approvals)
        if read.streams is None:
            return
        known = {name: state for name, state in read.streams.items() if name in BY_NAME}
        folded = parts.fold.positions
        behind = {
            name: max(0, state["last_seq"] - folded[name])
            for name, state in known.items()
            if name in folded
        }
        yield _by(
            "postroom_fold_behind_records",
            "Records of the log that are not folded.",
            org,
            _ORG_STREAM,
            behind,
        )
        yield _by(
            "postroom_stream_records",
            "Records in the log.",
            org,
            _ORG_STREAM,
            {name: state["messages"] for name, state in known.items()},
        )
        yield _by(
            "postroom_stream_bytes",
            "Bytes of the log.",
            org,
            _ORG_STREAM,
            {name: state["bytes"] for name, state in known.items()},
        )
        yield _one(
            "postroom_fold_lag_seconds",
            "How old a record was when it was folded last; while some wait, since when none was.",
            org,
            self._lag(parts, any(behind.values())),
        )

    def _lag(self, parts: Parts, behind: bool) -> float:
        found = parts.fold.statistics
        if not behind or not found.committed_at:
            return found.delay
        return max(found.delay, self.clock() - found.committed_at)


async def _workers(parts: Parts) -> dict[str, int]:
    states = {"running": 0, "failed": 0, "stopped": 0}
    for agent, _ in await parts.workers.records():
        run = parts.workers.run_of(agent.uid)
        if run is not None and run.running:
            states["running"] += 1
        elif parts.workers.failure(agent.uid) or (run is not None and not run.stopping):
            states["failed"] += 1
        else:
            states["stopped"] += 1
    return states


def _of_process(org: str, parts: Parts) -> Iterable[Family]:
    """What this process has counted of an organisation, and what it holds."""
    fold, bus = parts.fold.statistics, parts.bus.statistics()
    database, runs = parts.database.statistics(), parts.workers.statistics()
    for kind, name, meaning, none in _CHANGES:
        counted = {state: n for (of, state), n in fold.changes.items() if of == kind and state}
        yield _by(name, meaning, org, _ORG_STATE, none | counted, COUNTER)
    yield _by(
        "postroom_records_folded_total",
        "Records of the log that were folded, by how it went.",
        org,
        ("org", "outcome"),
        {
            "folded": fold.folded - fold.ignored - fold.poisoned,
            "ignored": fold.ignored,
            "passed_over": fold.poisoned,
        },
        COUNTER,
    )
    yield _one("postroom_fold_held_up", "1 while a fault holds up the fold.", org, bool(fold.fault))
    loops = [loop for some in parts.supervisors for loop in some.loops.values()]
    yield _by(
        "postroom_background_failing",
        "1 while background work fails, and is tried again.",
        org,
        ("org", "name"),
        {loop.name: bool(loop.failures) for loop in loops},
    )
    yield _by(
        "postroom_background_failures_total",
        "Times that background work has failed.",
        org,
        ("org", "name"),
        {loop.name: loop.total for loop in loops},
        COUNTER,
    )
    yield _one("postroom_bus_connected", "1 while the bus answers.", org, bus.connected)
    yield _by(
        "postroom_bus_messages_total",
        "What the control plane's connection to the bus has done.",
        org,
        ("org", "what"),
        {
            "published": bus.published,
            "received": bus.received,
            "refused": bus.refused,
            "ignored": bus.ignored,
            "dropped": bus.dropped,
        },
        COUNTER,
    )
    yield _one(
        "postroom_bus_reconnects_total",
        "Times the connection to the bus was made again.",
        org,
        bus.reconnects,
        COUNTER,
    )
    yield _by(
        "postroom_store_calls_total",
        "Transactions and views of the database.",
        org,
        ("org", "kind"),
        {"write": database.writes, "read": database.reads, "refused": database.refused},
        COUNTER,
    )
    yield _by(
        "postroom_store_seconds_total",
        "Seconds in transactions and views of the database.",
        org,
        ("org", "kind"),
        {"write": database.write_seconds, "read": database.read_seconds},
        COUNTER,
    )
    yield _one("postroom_store_waiting", "Calls that wait for the database.", org, database.waiting)
    yield _one("postroom_waiters", "Callers that wait for a change.", org, parts.changes.listening)
    yield _by(
        "postroom_sandboxes_total",
        "Sandboxes of workers: started, not started, ended by themselves, ended for a limit.",
        org,
        ("org", "what"),
        {
            "started": runs.started,
            "not_started": runs.not_started,
            "ended": runs.ended,
            "limited": runs.limited,
        },
        COUNTER,
    )


def _count(name: str, meaning: str, value: float | None) -> Family:
    return Family(name, COUNTER, meaning, values={} if value is None else {(): value})


def _one(name: str, meaning: str, org: str, value: float, kind: str = GAUGE) -> Family:
    return Family(name, kind, meaning, _ORG, {(org,): value})


def _by(
    name: str,
    meaning: str,
    org: str,
    labels: Labels,
    values: Mapping[str, float],
    kind: str = GAUGE,
) -> Family:
    return Family(name, kind, meaning, labels, {(org, key): n for key, n in values.items()})
