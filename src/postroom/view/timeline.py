"""What one feed or conversation shows: records become entries, in order, each once, and change in place. Pure.

A message has an entry with its id as key; one's own line has that of its attempt, since it is shown before it has an
id.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from postroom.protocol.receipts import RANK, State, is_final
from postroom.view.words import gist
from postroom_a2a.text import one_line
from postroom_a2a.times import format_time, parse_time

if TYPE_CHECKING:
    from postroom.protocol.shapes import Task

V = TypeVar("V")

ENDED = frozenset({State.ANSWERED.value, State.DEAD.value})
"""States of a request whose task has ended."""

REMEMBERED = 5000
"""Messages whose first words are kept for replies to them, and that are known to be shown."""

CHANGING = 1000
"""Messages that are kept whole because their state may change."""


QUOTED = 28
"""Characters of what is replied to."""

OPEN = frozenset({State.ACCEPTED, State.DELIVERED, State.SEEN})
UNREAD = frozenset({State.ACCEPTED, State.DELIVERED})


class EntryKind(Enum):
    """What an entry is."""

    MESSAGE = "message"
    ACTIVITY = "activity"
    TASK = "task"
    """The task that the message above requests, before its end is known."""

    ANSWER = "answer"
    """The same with what came of it."""

    SENDING = "sending"
    MARK = "mark"
    """A line of ours between records: a day, the beginning."""

    NEW = "new"
    """What stands below is new."""

    GONE = "gone"
    """Nothing; what had that key before goes."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One thing in a feed or a conversation; a later one with its key takes its place.

    Attributes:
        record: the post, the message, the activity, or the task that has ended; None for anything else.
        text: what a message replies to, the id of a task, a line that is on its way, or a mark.
        parts: of a line that is on its way, beside its text.
        waits: an activity still asks.
    """

    kind: EntryKind
    key: str
    record: Any = None
    text: str = ""
    parts: int = 0
    waits: bool = True


class Timeline:
    """Makes the entries of one target.

    Args:
        me: uid and nick of who looks.
    """

    def __init__(self, me: Any) -> None:
        self.me = me
        self.needs: OrderedDict[str, str] = OrderedDict()
        """key of an entry to the id of what an activity asks about"""
        self._asking: OrderedDict[str, tuple[Any, bool]] = OrderedDict()
        self._quotes: OrderedDict[str, str] = OrderedDict()
        self._ended: OrderedDict[str, bool] = OrderedDict()
        self._changing: OrderedDict[str, tuple[Any, str]] = OrderedDict()
        self._keys: OrderedDict[str, str] = OrderedDict()
        self._sending: dict[str, str] = {}
        self._count = 0
        self._before = ""  # id of the message above the end
        self._day = ""
        self._top: tuple[str, str] = ("", "")
        self._new = ""

    # ── records ──

    def newest(self, records: Sequence[Any]) -> list[TimelineEntry]:
        """The first page; a line stands above the first that is unread."""
        return self.newer(records, new=self.is_unread)

    def newer(self, records: Iterable[Any], *, new: Any = lambda _: False) -> list[TimelineEntry]:
        """Entries to append, or to replace those of the same key.

        Args:
            new: says of a record whether a line `new` stands above the first such one.
        """
        found: list[TimelineEntry] = []
        for record in records:
            if record.get("id") in self._quotes:
                found += self.changed(record)
                continue
            if key := self._on_its_way(record):
                found += self._aliased(record, key)
                continue
            found += self._day_mark(record)
            if new(record) and not self._is_mine(record):
                found += self._new_mark()
                new = _never
            found += self._block(record)
        return found

    def older(self, records: Sequence[Any]) -> tuple[list[TimelineEntry], list[TimelineEntry]]:
        """Entries to put at the top, and those to replace then."""
        blocks: list[TimelineEntry] = []
        replaced: list[TimelineEntry] = []
        day, first, before = "", ("", ""), ""
        unread = False
        for record in records:
            if record.get("id") in self._quotes:
                continue
            if not unread and self.is_unread(record):
                unread = True
                *gone, mark = self._new_mark()
                replaced += gone
                blocks.append(mark)
            if day_of(record) != day:
                day = day_of(record)
                mark = self._mark(day)
                blocks.append(mark)
                first = first if first[0] else (day, mark.key)
            blocks += self._made(record, before)
            before = record.get("id", before)
        if blocks and self._top[0] == day:
            replaced.append(_gone(self._top[1]))
        self._top = first if blocks else self._top
        return blocks, replaced

    def beginning(self, text: str) -> TimelineEntry:
        """The mark at the very beginning."""
        return TimelineEntry(EntryKind.MARK, self._next_key(), text=text)

    def changed(self, record: Any) -> list[TimelineEntry]:
        """A message that may have another state now; nothing for one that is not shown."""
        known = self._changing.get(record["id"])
        if known is None or "state" not in record:
            return []
        before, quote = known
        if not _is_later(record["state"], before["state"]):
            return []
        self._keep(record, quote)
        return [*self._answered(record), self._message(record, quote)]

    @property
    def unsettled(self) -> bool:
        """Whether the state of a message may still change."""
        return bool(self._changing)

    def is_unread(self, record: Any) -> bool:
        """Whether it is a message to the person that they have not seen."""
        return (
            "to" in record and record["to"]["uid"] == self.me["uid"] and record["state"] in UNREAD
        )

    def words_of(self, message_id: str) -> str:
        """The first words of a message that is shown."""
        return self._quotes.get(message_id, "")

    def key_of(self, message_id: str) -> str:
        """The key of the entry of a message."""
        return self._keys.get(message_id, message_id)

    # ── answers ──

    @property
    def unanswered(self) -> str:
        """Id of the newest task that has ended and whose results are not shown, "" for none."""
        return next((task for task in reversed(self._ended) if not self._ended[task]), "")

    def answer(self, id_: str, task: Task | None) -> list[TimelineEntry]:
        """A task that has ended, below its request; None for one that is not there any more."""
        self._ended[id_] = True
        return [TimelineEntry(EntryKind.ANSWER, f"task {id_}", task)] if task is not None else []

    # ── one's own lines ──

    def sending(self, text: str, parts: int) -> tuple[str, list[TimelineEntry]]:
        """A line that is on its way, and the key of its entry: another one in each attempt, which stands at the end."""
        key = self._next_key()
        self._sending[key] = text
        entry = TimelineEntry(EntryKind.SENDING, key, text=text, parts=parts)
        today = self._day_mark({"at": format_time(time.time())})
        return key, [*self.looked(), *today, entry]

    def sent(self, key: str, record: Any) -> list[TimelineEntry]:
        """The same as a record."""
        self._sending.pop(key, None)
        if record["id"] not in self._quotes:
            return self._aliased(record, key)
        # The live part was faster; or an earlier attempt with the same key had arrived.
        gone = [] if self._keys.get(record["id"]) == key else [_gone(key)]
        return [*gone, *self.changed(record)]

    def unsent(self, key: str) -> list[TimelineEntry]:
        """It did not go."""
        self._sending.pop(key, None)
        return [_gone(key)]

    def looked(self) -> list[TimelineEntry]:
        """The line `new` has served its purpose."""
        key, self._new = self._new, ""
        return [_gone(key)] if key else []

    def waiting(self, ids: Container[str]) -> list[TimelineEntry]:
        """What asks says how to answer it while it waits, and no longer: entries where that has changed.

        Args:
            ids: of the approvals and tasks that wait for the person.
        """
        changed: list[TimelineEntry] = []
        for key, (record, before) in self._asking.items():
            if (now := need_of(record) in ids) != before:
                self._asking[key] = record, now
                changed.append(TimelineEntry(EntryKind.ACTIVITY, key, record, waits=now))
        return changed

    # ── inside ──

    def _block(self, record: Any) -> list[TimelineEntry]:
        before, self._before = self._before, record.get("id", "")
        return [*self._answered(record), *self._made(record, before)]

    def _made(self, record: Any, before: str) -> list[TimelineEntry]:
        """A record that is not shown yet, with the task that it requests; `before` is the message above it."""
        if "what" in record:
            key = self._next_key()
            if need := need_of(record):
                _put(self.needs, key, need, CHANGING)
                _put(self._asking, key, (record, True), CHANGING)
            return [TimelineEntry(EntryKind.ACTIVITY, key, record)]
        _put(self._quotes, record["id"], quote_of(record), REMEMBERED)
        replied = record.get("reply_to") or ""
        quote = "" if replied in ("", before) else self._quotes.get(replied, "an earlier message")
        self._keep(record, quote)
        task = record.get("task")
        return [
            self._message(record, quote),
            *([TimelineEntry(EntryKind.TASK, f"task {task}", text=task)] if task else []),
        ]

    def _message(self, record: Any, quote: str) -> TimelineEntry:
        key = self._keys.get(record["id"], record["id"])
        return TimelineEntry(EntryKind.MESSAGE, key, record, quote)

    def _keep(self, record: Any, quote: str) -> None:
        if (task := record.get("task")) and record["state"] in ENDED:
            # Once its answer is shown, it stays so.
            _put(self._ended, task, self._ended.get(task, False), CHANGING)
        if "state" not in record or settled(record):
            self._changing.pop(record["id"], None)
        else:
            _put(self._changing, record["id"], (record, quote), CHANGING)

    def _answered(self, record: Any) -> list[TimelineEntry]:
        """The message that a record answers, which asks no more."""
        known = self._changing.get(record.get("reply_to") or "")
        if known is None or not is_open(known[0]):
            return []
        answered, quote = {**known[0], "state": State.ANSWERED.value}, known[1]
        self._keep(answered, quote)
        return [self._message(answered, quote)]

    def _is_mine(self, record: Any) -> bool:
        return "from" in record and record["from"]["uid"] == self.me["uid"]

    def _on_its_way(self, record: Any) -> str:
        """The key of the line that is being sent, if that is the record; "" for none."""
        if not self._is_mine(record):
            return ""
        taken = set(self._keys.values())
        same = (k for k, text in self._sending.items() if text == record["text"] and k not in taken)
        return next(same, "")

    def _aliased(self, record: Any, key: str) -> list[TimelineEntry]:
        _put(self._keys, record["id"], key, CHANGING)
        return self._block(record)

    def _day_mark(self, record: Any) -> Iterator[TimelineEntry]:
        if (day := day_of(record)) == self._day:
            return
        self._day, mark = day, self._mark(day)
        self._top = self._top if self._top[0] else (day, mark.key)
        yield mark

    def _new_mark(self) -> list[TimelineEntry]:
        gone = self.looked()
        self._new = self._next_key()
        return [*gone, TimelineEntry(EntryKind.NEW, self._new)]

    def _mark(self, text: str) -> TimelineEntry:
        return TimelineEntry(EntryKind.MARK, self._next_key(), text=text)

    def _next_key(self) -> str:
        self._count += 1
        return f"line-{self._count}"


def at_of(record: Any) -> str:
    """The RFC 3339 time of a post, a message or an activity."""
    return record.get("at") or record["sent_at"]


def day_of(record: Any) -> str:
    """The local day of a record, such as `Monday, 23 November 2026`."""
    then = time.localtime(parse_time(at_of(record)))
    return f"{time.strftime('%A', then)}, {then.tm_mday} {time.strftime('%B %Y', then)}"


def quote_of(record: Any) -> str:
    """A message in a few words, for a reply to it."""
    return one_line(gist(record), QUOTED)


def need_of(record: Any) -> str:
    """Id of the approval or the task that an activity asks about, "" for none."""
    match record.get("what"):
        case "asks":
            return record["task"] or ""
        case "approval":
            return record["approval"] or ""
    return ""


def is_open(mail: Any) -> bool:
    """Whether a message waits for an answer."""
    return bool(mail.get("expects_reply")) and mail["state"] in OPEN


def settled(mail: Any) -> bool:
    """Whether the state of a message changes no more."""
    state = mail["state"]
    return state not in set(State) or is_final(
        State(state), expects_reply=bool(mail.get("expects_reply"))
    )


def before(record: Any, instant: float) -> bool:
    """Whether a record came before `instant`, in seconds since the epoch."""
    return parse_time(at_of(record)) < instant


def _gone(key: str) -> TimelineEntry:
    return TimelineEntry(EntryKind.GONE, key)


def _never(_record: Any) -> bool:
    return False


def _is_later(state: str, before: str) -> bool:
    if state not in set(State):
        return False
    return before not in set(State) or RANK[State(state)] > RANK[State(before)]


def _put(kept: OrderedDict[str, V], key: str, value: V, most: int) -> None:
    kept[key] = value
    if len(kept) > most:
        kept.popitem(last=False)
