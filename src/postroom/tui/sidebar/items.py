"""The rows of the sidebar, made of a snapshot: what needs the person, projects, workers, others. Pure; no Textual."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from postroom.lines.rows import Span, Style, style_of
from postroom.lines.text import columns, shortened
from postroom.protocol.sessions import SessionStanding
from postroom.view.needs import Need, NeedKind
from postroom.view.room import Room
from postroom.view.sessions import standing, whereabouts
from postroom.view.words import natural
from postroom.view.workers import broken, last_word, state_word
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.protocol.shapes import Listed, Worker

MARKS: dict[NeedKind, tuple[str, Style]] = {
    NeedKind.APPROVAL: ("!", Style.ASKS),
    NeedKind.QUESTION: ("?", Style.ASKS),
    NeedKind.FAILED: ("x", Style.BAD),
    NeedKind.STALLED: ("~", Style.BAD),
    NeedKind.ALERT: ("*", Style.BAD),
    NeedKind.MAIL: ("m", Style.TOOL),
    NeedKind.DEAD: ("+", Style.BAD),
}
"""The first column of a need, so that kinds differ without colours, too."""

MARKED = "•"
"""Stands before a row that is marked."""

STATE_COLUMNS = 8
ROOMY = 50
"""Columns from which on a worker's nick and text have more room."""

WELCOME = (
    "no workers yet; type",
    "  /spawn FILE.toml",
    "or in a shell",
    "  postroom spawn FILE",
    "? shows all keys",
)

FOLDED, UNFOLDED = "▸", "▾"

HIDDEN = "workers: not shown"


@dataclass(frozen=True, slots=True)
class Item:
    """One row.

    Attributes:
        key: names what it shows, as long as that is there.
        spans: what is written, padded to the width.
        name, uid: of the project (`uid` "") or of the agent that it stands for; "" for neither.
        need: what needs the person, in the first part of the list.
        chosen: it can be selected.
    """

    key: str
    spans: tuple[Span, ...]
    name: str = ""
    uid: str = ""
    need: Need | None = field(default=None, compare=False)

    @property
    def chosen(self) -> bool:
        """Whether it can be selected."""
        return bool(self.name) or self.need is not None

    def named(self, words: Iterable[str]) -> bool:
        """Whether the name of what it stands for has all of these words."""
        name = f"{'@' if self.uid else '#'}{self.name}".casefold()
        return bool(self.name) and all(word in name for word in words)

    def shows(self, target: str) -> bool:
        """Whether it stands for that `#project` or uid."""
        return self.need is None and bool(self.name) and target == (self.uid or f"#{self.name}")


def items(
    room: Room,
    width: int,
    now: float,
    new: Mapping[str, int],
    shown: str = "",
    *,
    others: bool = True,
    wanted: str = "",
    folded: Container[str] | None = None,
    marked: Collection[str] = (),
) -> list[Item]:
    """The rows from top to bottom.

    Args:
        width: columns of a row.
        now: seconds since the epoch.
        new: posts of a project, or messages of an agent, since the person looked at it last: by `#project` or uid.
        shown: what the person looks at: `#project` or a uid.
        others: also the agents that have no worker.
        wanted: only what has all of these words, folded or not.
        folded: names of projects whose workers are not shown; None where none can be folded.
        marked: keys of the rows on which the next act is done.
    """
    maker = _Maker(width, now, new, shown, wanted, folded, marked)
    last = maker.others(room) if others else ()
    found = [*maker.needs(room), *maker.projects(room), *last]
    if not wanted:
        return found
    head = maker.head(f"/{one_line(wanted)} · Esc: all", Style.STRONG)
    return [head, *(found or [maker.text("nothing has that")])]


def age(since: float, now: float) -> str:
    """How long ago, in at most three columns: `<1m`, `12m`, `3h`, `40d`; "" for 0, which is unknown."""
    if not since:
        return ""
    seconds = max(0, int(now - since))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{min(99, seconds // size)}{unit}"
    return "<1m"


def _waiting(worker: Worker) -> str:
    """How many messages its agent has not read: `m3`; "" for none, and while the bus does not tell."""
    return f"m{min(99, worker['unread'])}" if worker["unread"] else ""


class _Maker:
    def __init__(
        self,
        width: int,
        now: float,
        new: Mapping[str, int],
        shown: str,
        wanted: str,
        folded: Container[str] | None,
        marked: Collection[str],
    ) -> None:
        self._marked = marked
        self._width = width
        self._now = now
        self._new = new
        self._shown = shown
        self._wanted = wanted.casefold().split()
        self._folded = folded

    def _has(self, *texts: str) -> bool:
        """Whether these have all words that are wanted."""
        text = " ".join(texts).casefold()
        return all(word in text for word in self._wanted)

    def needs(self, room: Room) -> Iterator[Item]:
        found = [need for need in room.needs if self._has(need.who, need.text)]
        if not found:
            return
        yield self.head(f"needs you ({len(found)})", Style.ASKS)
        for need in found:
            mark, style = MARKS[need.kind]
            who = f"{need.who} " if need.who else ""
            chosen = MARKED if need.key in self._marked else " "
            left = (Span(f"{mark}{chosen}", style), Span(who, who=need.worker), Span(need.text))
            until = age(need.since, self._now)
            yield Item(need.key, self._line(left, Span(until, Style.DIM)), need=need)
        yield self.text("")

    def projects(self, room: Room) -> Iterator[Item]:
        for project in room.projects:
            workers = self._fitting(room.workers_of(project), room)
            folds = bool(workers) and not self._wanted and project in (self._folded or ())
            if workers or self._has(f"#{project}"):
                yield self._project(project, workers, folds=folds)
            if not folds:
                yield from (self._worker(worker, room) for worker in workers)
        known = set(room.projects)
        loose = [worker for worker in room.workers if worker["project"] not in known]
        if found := self._fitting(loose, room):
            yield self.head("in no project")
            yield from (self._worker(worker, room) for worker in found)
        if self._wanted:
            return
        if room.hidden:
            yield self.text(HIDDEN)
        elif not room.workers:
            yield from map(self.text, WELCOME)

    def _fitting(self, workers: Iterable[Worker], room: Room) -> list[Worker]:
        if not self._wanted:
            return list(workers)
        return [
            each
            for each in workers
            if self._has(
                f"#{each['project']} @{each['nick']}",
                state_word(each, room.asking),
                last_word(each),
            )
        ]

    def others(self, room: Room) -> Iterator[Item]:
        away = [one for one in room.agents if one["kind"] != "human"]
        people = [one for one in room.agents if one["kind"] == "human"]
        for title, agents in (("elsewhere", away), ("people", people)):
            named = [one for one in agents if self._has(f"@{one['nick']}")]
            found = [one for one in named if not self._is_past(one)]
            if found:
                yield self.head(title)
                ordered = sorted(found, key=lambda one: (not one["online"], natural(one["nick"])))
                yield from (self._agent(one, room.me["uid"]) for one in ordered)

    def _is_past(self, agent: Listed) -> bool:
        """Whether it is a session that is gone, and nobody looks for it: each day leaves some."""
        session, uid = agent.get("session"), agent["uid"]
        gone = session is not None and session["state"] == SessionStanding.GONE
        return gone and not (self._wanted or self._new.get(uid) or uid == self._shown)

    def head(self, text: str, style: Style = Style.DIM) -> Item:
        return Item(f"head/{text.partition(' (')[0]}", self._line((Span(text, style),)))

    def text(self, text: str) -> Item:
        return Item(f"text/{text}", self._line((Span(text, Style.DIM),)))

    def _project(self, project: str, workers: Sequence[Worker], *, folds: bool) -> Item:
        """Its row, with what is new of all that is folded into it."""
        name = f"#{one_line(project)}"
        inside = [worker["uid"] for worker in workers] if folds else []
        style = Style.STRONG if self._new.get(f"#{project}") or self._shown == name else Style.TOOL
        mark = ">" if self._shown in inside else self._mark(name)
        left = (Span(mark), Span(name, style), Span(self._fold(len(workers), folds), Style.DIM))
        return Item(f"project/{project}", self._line(left, self._count(name, *inside)), project)

    def _fold(self, count: int, folds: bool) -> str:
        if not count or self._folded is None or self._wanted:
            return ""
        return f" {FOLDED} {count} worker{'s' if count > 1 else ''}" if folds else f" {UNFOLDED}"

    def _worker(self, worker: Worker, room: Room) -> Item:
        state = state_word(worker, room.asking)
        style = style_of(state)
        task = worker.get("task")
        began = task.get("started_at") if task else None
        since = parse_time(began) if began else 0.0
        uid, nick = worker["uid"], f"@{one_line(worker['nick'])}"
        most = 20 if self._width >= ROOMY else max(6, self._width - STATE_COLUMNS - 7)
        nick = shortened(nick, most)
        padded = nick + " " * (most - columns(nick)) if self._width >= ROOMY else nick
        tells = task or broken(worker) or worker.get("trouble")
        said = last_word(worker) if tells else ""
        left = (
            Span(f"{MARKED if f'agent/{uid}' in self._marked else ' '}{self._mark(uid)}"),
            Span(f"{padded} ", who=uid),
            Span(f"{state:<{STATE_COLUMNS}} " if self._width >= ROOMY else f"{state} ", style),
            Span(said, Style.DIM),
        )
        count = self._count(uid)
        ends = (count.text, _waiting(worker), age(since, self._now))
        right = Span(" ".join(end for end in ends if end), count.style)
        return Item(f"agent/{uid}", self._line(left, right), worker["nick"], uid)

    def _agent(self, agent: Listed, me: str) -> Item:
        uid = agent["uid"]
        if uid == me:
            spans = (Span("  "), Span(f"@{one_line(agent['nick'])} (you)", Style.DIM))
            return Item(f"text/{uid}", self._line(spans))
        left = (
            Span(f" {self._mark(uid)}"),
            Span(f"@{one_line(agent['nick'])} ", who=uid),
            *self._presence(agent),
        )
        return Item(f"agent/{uid}", self._line(left, self._count(uid)), agent["nick"], uid)

    def _presence(self, agent: Listed) -> tuple[Span, ...]:
        here, session = agent["online"], agent.get("session")
        if session is None:
            return (Span("here" if here else "away", Style.GOOD if here else Style.DIM),)
        state = standing(session, online=here)
        where = Span(f"  {whereabouts(session, self._now)}", Style.DIM)
        return (Span(state, style_of(state)), where)

    def _mark(self, key: str) -> str:
        return ">" if key == self._shown else " "

    def _count(self, *keys: str) -> Span:
        """What is new there."""
        count = sum(self._new.get(key, 0) for key in keys)
        return Span(f"({min(count, 999)})" if count else "", Style.ASKS)

    def _line(self, left: tuple[Span, ...], right: Span | None = None) -> tuple[Span, ...]:
        """The pieces cut and padded to the width, `right` at the end."""
        end = right.text if right is not None else ""
        room = max(0, self._width - (columns(end) + 1 if end else 0))
        spans: list[Span] = []
        for span in left:
            text = shortened(span.text, room) if room > 0 else ""
            if text:
                spans.append(span.part(text))
            room -= columns(text)
        if end and right is not None:
            spans += [Span(" " * (room + 1)), right]
        return tuple(spans)
