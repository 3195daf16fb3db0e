"""What the word at the cursor may become. Pure but for the names of files, which `paths` reads."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.protocol.modes import MODES
from postroom.tui.typing.commands import BY_NAME, VERBS, WHO, Kind, Verb
from postroom.view.approvals import what
from postroom.view.tasks import short
from postroom.view.words import natural
from postroom_a2a.text import one_line

if TYPE_CHECKING:
    from postroom.view.room import Room

MOST = 50
"""Candidates that are offered."""

MOST_FILES = 2000
"""Entries of a folder that are looked at."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a word may become; `about` says more, for the eye alone."""

    word: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """The candidates for the characters `start` to `end` of the line."""

    start: int
    end: int
    candidates: tuple[Candidate, ...] = ()

    @property
    def common(self) -> str:
        """What all of them begin with."""
        words = [each.word for each in self.candidates]
        length = 0
        for letters in zip(*words, strict=False):
            if len(set(letters)) > 1:
                break
            length += 1
        return words[0][:length] if words else ""


@dataclass(frozen=True, slots=True)
class Known:
    """What there is to name.

    Attributes:
        agents: nicks, with what they do; `workers` are those that Postroom runs.
        templates: names of templates that Postroom brings.
    """

    agents: Sequence[Candidate] = ()
    workers: Sequence[Candidate] = ()
    projects: Sequence[Candidate] = ()
    approvals: Sequence[Candidate] = ()
    questions: Sequence[Candidate] = ()
    tasks: Sequence[Candidate] = ()
    alerts: Sequence[Candidate] = ()
    templates: Sequence[str] = ()
    paths: Callable[[str, bool], Iterable[str]] = lambda _begun, _folders: ()


def known_of(
    room: Room | None,
    templates: Sequence[str],
    paths: Callable[[str, bool], Iterable[str]],
) -> Known:
    """What a snapshot of the post room names."""
    if room is None:
        return Known(templates=templates, paths=paths)
    tasks = {short(task["id"]): task["text"] for task in room.questions}
    for worker in room.workers:
        if task := worker.get("task"):
            tasks.setdefault(short(task["id"]), task["text"])
    workers = {worker["nick"]: worker["state"] for worker in room.workers}
    agents = workers | {agent["nick"]: agent["kind"] for agent in room.agents}
    return Known(
        agents=[
            Candidate(f"@{one_line(nick)}", agents[nick]) for nick in sorted(agents, key=natural)
        ],
        workers=[
            Candidate(f"@{one_line(nick)}", workers[nick]) for nick in sorted(workers, key=natural)
        ],
        projects=[Candidate(f"#{one_line(name)}") for name in room.projects],
        approvals=[
            Candidate(short(each["id"]), f"@{each['worker']['nick']}: {what(each)}")
            for each in room.approvals
        ],
        questions=[_task(task["id"], task["text"]) for task in room.questions],
        tasks=[_task(id_, text) for id_, text in tasks.items()],
        alerts=[
            Candidate(str(each["id"]), one_line(each["text"], 60)) for each in room.status["alerts"]
        ],
        templates=templates,
        paths=paths,
    )


def _task(id_: str, text: str) -> Candidate:
    return Candidate(short(id_), one_line(text, 60))


_WORDS = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*(?:"|$)|'[^']*(?:'|$)|\\$)+""", re.DOTALL)


def complete(line: str, cursor: int, known: Known) -> Completion:
    """The candidates for the word before the cursor, those that begin with it first."""
    begun = line[:cursor]
    words = [(found.start(), found[0]) for found in _WORDS.finditer(begun)]
    if not words or begun[-1:].isspace():
        words.append((len(begun), ""))
    start, word = words[-1]
    found = tuple(_candidates([each for _, each in words[:-1]], word, known))
    return Completion(start, cursor, found[:MOST])


def _candidates(before: Sequence[str], word: str, known: Known) -> Iterator[Candidate]:
    if not before and word.startswith("/") and not word.startswith("//"):
        yield from _fitting((Candidate(f"/{verb.name}", verb.help) for verb in VERBS), word)
        return
    verb = BY_NAME.get(before[0][1:]) if before and before[0].startswith("/") else None
    if verb is None:
        if word.startswith("@"):
            yield from _fitting(known.agents, word)
        elif word.startswith("#"):
            yield from _fitting(known.projects, word)
        return
    kind = _kind(verb, before[1:], word)
    if word.startswith("-") and verb.options:
        flags = dict.fromkeys(option.flag for option in verb.options if option.flag[:2] == "--")
        yield from _fitting(map(Candidate, flags), word)
    elif kind is not None:
        yield from _of_kind(kind, word, known)


def _kind(verb: Verb, before: Sequence[str], word: str) -> Kind | None:
    """What the word stands for."""
    flags = {option.flag: option for option in verb.options}
    valued = [flag for flag, option in flags.items() if not option.alone]
    if before and before[-1] in valued:
        return flags[before[-1]].kind
    said = [
        each
        for number, each in enumerate(before)
        if each not in flags and (number == 0 or before[number - 1] not in valued)
    ]
    slots = list(verb.slots)
    if slots and slots[0].kind in WHO and said and not said[0].startswith("@"):
        slots.pop(0)
    if len(said) < len(slots):
        return slots[len(said)].kind
    return Kind.AGENT if word.startswith("@") else None


def _of_kind(kind: Kind, word: str, known: Known) -> Iterator[Candidate]:
    match kind:
        case Kind.AGENT | Kind.WORKER:
            # A nick without its @ would be the beginning of a text.
            found = known.agents if kind is Kind.AGENT else known.workers
            yield from _fitting(found, word if word.startswith("@") else f"@{word}")
        case Kind.PROJECT:
            yield from _fitting(known.projects, word if word.startswith("#") else f"#{word}")
        case Kind.APPROVAL | Kind.QUESTION | Kind.TASK | Kind.ALERT:
            yield from _fitting(getattr(known, f"{kind.value}s"), word)
        case Kind.CLEAR:
            yield from _fitting([Candidate("clear", "one, or all")], word)
        case Kind.MODE:
            yield from _fitting(map(Candidate, MODES), word)
        case Kind.COMMAND:
            yield from _fitting((Candidate(verb.name, verb.help) for verb in VERBS), word)
        case Kind.TEMPLATE:
            yield from _fitting(map(Candidate, known.templates), word)
            if word:
                yield from _files(word, known, folders=False)
        case Kind.PATH | Kind.FOLDER:
            yield from _files(word, known, folders=kind is Kind.FOLDER)
        case _:
            if word.startswith("@"):
                yield from _fitting(known.agents, word)


def _fitting(candidates: Iterable[Candidate], word: str) -> Iterator[Candidate]:
    return (each for each in candidates if each.word.lower().startswith(word.lower()))


def _files(word: str, known: Known, *, folders: bool) -> Iterator[Candidate]:
    for path in known.paths(_unquoted(word), folders):
        yield Candidate(_quoted(path))


def _unquoted(word: str) -> str:
    """The text of a word whose quotes may still be open."""
    for closing in ("", "'", '"', "\\"):
        try:
            return "".join(shlex.split(word + closing))
        except ValueError:
            continue
    return word


def _quoted(path: str) -> str:
    """A path as a word; `~` at its beginning still means the home folder."""
    if path.startswith("~/"):
        return "~/" + (shlex.quote(path[2:]) if path[2:] else "")
    return shlex.quote(path)


def no_paths(_begun: str, _folders: bool) -> list[str]:
    """None: while one types, no folder is read."""
    return []


def paths(begun: str, folders: bool) -> list[str]:
    """The files, or folders alone, whose paths begin so; folders end with `/`. Hidden ones only if asked for."""
    head, slash, tail = begun.rpartition("/")
    try:
        entries = list(_entries(Path(head + slash).expanduser()))
    except (OSError, RuntimeError, ValueError):  # not there, not readable, no home folder, a NUL
        return []
    found = [
        f"{head}{slash}{name}{'/' if folder else ''}"
        for name, folder in entries
        if name.startswith(tail)
        and (folder or not folders)
        and (not name.startswith(".") or tail.startswith("."))
        and name.isprintable()
    ]
    return sorted(found)


def _entries(folder: Path) -> Iterator[tuple[str, bool]]:
    with os.scandir(folder) as found:
        for number, entry in enumerate(found):
            if number == MOST_FILES:
                return
            yield entry.name, entry.is_dir()
