"""What has ended and may be given up: messages, tasks, events, posts and announcements, a page at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import (
    Float,
    and_,
    bindparam,
    delete,
    exists,
    false,
    func,
    literal_column,
    or_,
    select,
    true,
)

from postroom.store.database import Store
from postroom.store.ports import Ended
from postroom.store.schema import (
    announcements,
    deadletters,
    given_up,
    memberships,
    messages,
    posts,
    push_configs,
    pushes,
    sdk_events,
    workers,
)
from postroom.store.session import Prepared, Session, among, octets, prepared

Sizes = list[tuple[tuple[str, ...], str, int]]
"""Bytes by the parties or by the project."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of thing.

    Attributes:
        page: the first things past a key that have ended, in the order of their keys.
        sizes: bytes of all of that kind, open ones too.
        held: those of some things that must stay, by key; `gone` are keys that go in the same run.
        give_up: deletes things.
        rule: the rule of retention that they are kept by; "" for the one of their own name.
    """

    page: Callable[[Store, int, int], list[Ended]]
    sizes: Callable[[Store], Sizes]
    held: Callable[[Store, Sequence[Ended], Collection[int]], set[int]]
    give_up: Callable[[Store, Sequence[Ended]], None]
    rule: str = ""


def projects_of_agents(session: Session) -> dict[str, str]:
    """The project of each worker, removed ones too."""
    found = select(memberships.c.uid, memberships.c.project).order_by(memberships.c.project.desc())
    ruled = select(workers.c.uid, workers.c.project)
    return dict((*session.rows(found), *session.rows(ruled)))


def forget_dropped(session: Session, before: float) -> int:
    """Delete dead letters that were dropped before `before`; returns how many."""
    return session.run(delete(deadletters).where(deadletters.c.dropped_at < before))


# ── messages ────────────────────────────────────────────────────────────────────────────────────────────────

_MESSAGE_SIZE = octets(messages.c.text) + octets(messages.c.message)
_LETTER = exists().where(
    and_(
        deadletters.c.message_id == messages.c.id,
        deadletters.c.sender == messages.c.sender,
        deadletters.c.dropped_at.is_(None),
    )
)
_MESSAGES = prepared(
    select(
        messages.c.seq,
        messages.c.id,
        messages.c.sender,
        messages.c.recipient,
        messages.c.stored_at,
        messages.c.updated_at,
        _MESSAGE_SIZE,
        messages.c.reply_to,
    )
    # A request goes with its task.
    .where(messages.c.seq > bindparam("after"), messages.c.final == true())
    .where(messages.c.requests == false(), ~_LETTER)
    .order_by(messages.c.seq)
    .limit(bindparam("most"))
)
_QUESTIONS = prepared(
    select(messages.c.id, messages.c.sender, messages.c.recipient, messages.c.seq).where(
        among(messages.c.id, "ids")
    )
)
_GIVE_UP = Prepared(
    lambda dialect: (
        dialect.insert(given_up)
        .from_select(
            ["sender", "id", "stored_at", "given_up_at"],
            select(
                messages.c.sender,
                messages.c.id,
                messages.c.stored_at,
                bindparam("now", type_=Float),
            ).where(among(messages.c.seq, "keys")),
        )
        .on_conflict_do_nothing()
    )
)
_FORGET_MESSAGES = prepared(delete(messages).where(among(messages.c.seq, "keys")))


def _messages(store: Store, after: int, limit: int) -> list[Ended]:
    return [
        Ended(seq, name, (recipient, sender), stored, ended, size, reply_to=reply_to)
        for seq, name, sender, recipient, stored, ended, size, reply_to in store.session.rows(
            _MESSAGES, after=after, most=limit
        )
    ]


def _message_sizes(store: Store) -> Sizes:
    found = select(messages.c.recipient, messages.c.sender, func.sum(_MESSAGE_SIZE))
    rows = store.session.rows(found.group_by(messages.c.recipient, messages.c.sender))
    return [((recipient, sender), "", int(total)) for recipient, sender, total in rows]


def _held_messages(store: Store, chosen: Sequence[Ended], gone: Collection[int]) -> set[int]:
    """An answer goes not before its question, which shows it."""
    names = {row.reply_to for row in chosen if row.reply_to}
    if not names:
        return set()
    questions = {
        (name, (sender, recipient)): seq
        for name, sender, recipient, seq in store.session.rows(_QUESTIONS, ids=names)
    }
    going, held = {row.key for row in chosen}, set()
    for row in chosen:  # a question comes before its answer
        question = questions.get((row.reply_to, row.parties))
        if question is not None and question not in gone and question not in going:
            held.add(row.key)
            going.discard(row.key)
    return held


def forget_given_up(session: Session, before: float) -> int:
    """Forget the ids of messages that were given up before `before`; returns how many."""
    return session.run(delete(given_up).where(given_up.c.given_up_at < before))


def _give_up_messages(store: Store, chosen: Sequence[Ended]) -> None:
    keys = [row.key for row in chosen]
    store.session.run(_GIVE_UP, {"keys": keys, "now": time.time()})
    gone = store.threads.going(keys)
    store.session.run(_FORGET_MESSAGES, {"keys": keys})
    store.threads.forget(gone)
    store.reading.forget(keys)


# ── tasks and their events ──────────────────────────────────────────────────────────────────────────────────

_OPEN_REQUESTS = prepared(
    select(messages.c.seq).where(among(messages.c.seq, "keys"), messages.c.final == false())
)
_FORGET_PUSHES = (
    prepared(delete(pushes).where(among(pushes.c.about, "ids"))),
    prepared(delete(push_configs).where(among(push_configs.c.task, "ids"))),
)


def _tasks(store: Store, after: int, limit: int) -> list[Ended]:
    return store.tasks.ended(after, limit)


def _task_sizes(store: Store) -> Sizes:
    return [((worker,), "", sum(sizes)) for worker, sizes in store.tasks.sizes().items()]


def _held_tasks(store: Store, chosen: Sequence[Ended], _: Collection[int]) -> set[int]:
    """A task stays as long as its request is open: that waits for a receipt about it."""
    return set(store.session.column(_OPEN_REQUESTS, keys=[row.key for row in chosen]))


def _give_up_tasks(store: Store, chosen: Sequence[Ended]) -> None:
    ids = [row.id for row in chosen]
    store.tasks.forget(ids)
    for forget in _FORGET_PUSHES:
        store.session.run(forget, {"ids": ids})
    _give_up_messages(store, chosen)


def _events(store: Store, after: int, limit: int) -> list[Ended]:
    ended = store.tasks.ended(after, limit, sized=False)
    sizes = store.tasks.progress([row.id for row in ended])
    return [
        replace(row, size=size, number=number)
        for row in ended
        for number, size in [sizes.get(row.id, (0, 0))]
    ]


def _event_sizes(store: Store) -> Sizes:
    return [((worker,), "", events) for worker, (_, events) in store.tasks.sizes().items()]


def _give_up_events(store: Store, chosen: Sequence[Ended]) -> None:
    store.tasks.forget_progress([row.id for row in chosen])


# ── events of workers ───────────────────────────────────────────────────────────────────────────────────────

_SDK_EVENT_SIZE = octets(sdk_events.c.event)
_GIVEN_UP = and_(
    # What was used is summed from these, and a question that waits is answered; the rest has ended when it happened.
    sdk_events.c.kind != literal_column("'usage'"),
    or_(sdk_events.c.settled.is_(None), sdk_events.c.settled != literal_column("0")),
)
_SDK_EVENTS = prepared(
    select(sdk_events.c.id, sdk_events.c.worker, sdk_events.c.at, _SDK_EVENT_SIZE)
    .where(_GIVEN_UP, sdk_events.c.id > bindparam("after"))
    .order_by(sdk_events.c.id)
    .limit(bindparam("most"))
)
_FORGET_SDK_EVENTS = prepared(delete(sdk_events).where(among(sdk_events.c.id, "keys")))


def _sdk_events(store: Store, after: int, limit: int) -> list[Ended]:
    rows = store.session.rows(_SDK_EVENTS, after=after, most=limit)
    return [Ended(seq, "", (worker,), at, at, size) for seq, worker, at, size in rows]


def _sdk_event_sizes(store: Store) -> Sizes:
    found = select(sdk_events.c.worker, func.sum(_SDK_EVENT_SIZE)).where(_GIVEN_UP)
    rows = store.session.rows(found.group_by(sdk_events.c.worker))
    return [((worker,), "", int(total)) for worker, total in rows]


def _give_up_sdk_events(store: Store, chosen: Sequence[Ended]) -> None:
    store.session.run(_FORGET_SDK_EVENTS, {"keys": [row.key for row in chosen]})


# ── posts ───────────────────────────────────────────────────────────────────────────────────────────────────

_POST_SIZE = octets(posts.c.text) + octets(posts.c.message)
_POSTS = prepared(
    select(posts.c.seq, posts.c.id, posts.c.at, posts.c.project, _POST_SIZE)
    .where(posts.c.seq > bindparam("after"))
    .order_by(posts.c.seq)
    .limit(bindparam("most"))
)
_FORGET_POSTS = prepared(delete(posts).where(among(posts.c.seq, "keys")))


def _posts(store: Store, after: int, limit: int) -> list[Ended]:
    rows = store.session.rows(_POSTS, after=after, most=limit)
    return [Ended(seq, name, (), at, at, size, project) for seq, name, at, project, size in rows]


def _post_sizes(store: Store) -> Sizes:
    found = select(posts.c.project, func.sum(_POST_SIZE)).group_by(posts.c.project)
    return [((), project, int(total)) for project, total in store.session.rows(found)]


def _give_up_posts(store: Store, chosen: Sequence[Ended]) -> None:
    store.session.run(_FORGET_POSTS, {"keys": [row.key for row in chosen]})


# ── announcements ───────────────────────────────────────────────────────────────────────────────────────────

_ANNOUNCEMENT_SIZE = octets(announcements.c.text) + octets(announcements.c.message)
_ANNOUNCEMENTS = prepared(
    select(
        announcements.c.seq,
        announcements.c.id,
        announcements.c.sender,
        announcements.c.at,
        _ANNOUNCEMENT_SIZE,
    )
    .where(announcements.c.seq > bindparam("after"))
    .order_by(announcements.c.seq)
    .limit(bindparam("most"))
)
_FORGET_ANNOUNCEMENTS = prepared(delete(announcements).where(among(announcements.c.seq, "keys")))


def _announcements(store: Store, after: int, limit: int) -> list[Ended]:
    rows = store.session.rows(_ANNOUNCEMENTS, after=after, most=limit)
    return [Ended(seq, name, (sender,), at, at, size) for seq, name, sender, at, size in rows]


def _announcement_sizes(store: Store) -> Sizes:
    found = select(announcements.c.sender, func.sum(_ANNOUNCEMENT_SIZE))
    rows = store.session.rows(found.group_by(announcements.c.sender))
    return [((sender,), "", int(total)) for sender, total in rows]


def _give_up_announcements(store: Store, chosen: Sequence[Ended]) -> None:
    store.session.run(_FORGET_ANNOUNCEMENTS, {"keys": [row.key for row in chosen]})


def _nothing_held(*_: object) -> set[int]:
    return set()


KINDS = {
    "messages": Kind(_messages, _message_sizes, _held_messages, _give_up_messages),
    "tasks": Kind(_tasks, _task_sizes, _held_tasks, _give_up_tasks),
    "events": Kind(_events, _event_sizes, _nothing_held, _give_up_events),
    "worker-events": Kind(
        _sdk_events, _sdk_event_sizes, _nothing_held, _give_up_sdk_events, "events"
    ),
    "posts": Kind(_posts, _post_sizes, _nothing_held, _give_up_posts),
    "announcements": Kind(
        _announcements, _announcement_sizes, _nothing_held, _give_up_announcements
    ),
}
"""The kinds, by their own names."""
