"""What a person may type behind a `/`: the table of commands, and the parser. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum

from postroom.errors import InvalidInput
from postroom.protocol.modes import MODES
from postroom_a2a.text import one_line


class Kind(Enum):
    """What a word of a command is: it says what completes it."""

    AGENT = "agent"
    WORKER = "worker"
    PROJECT = "project"
    APPROVAL = "approval"
    TASK = "task"
    QUESTION = "question"
    TEMPLATE = "template"
    PATH = "path"
    FOLDER = "folder"
    COMMAND = "command"
    SKILL = "skill"
    MODE = "mode"
    ALERT = "alert"
    CLEAR = "clear"
    FREE = "free"


WHO = (Kind.AGENT, Kind.WORKER)
"""Words that begin with `@`, and stand for the chosen agent where they are left out."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A word of a command, or with `rest` all that follows.

    Attributes:
        name: of its value.
        needed: an error without it.
    """

    name: str
    kind: Kind
    needed: bool = True
    rest: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """An option, whose value is the next word.

    Attributes:
        many: it may be given again.
        alone: it has no value.
    """

    flag: str
    name: str
    kind: Kind
    many: bool = False
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Verb:
    """A command.

    Attributes:
        usage: what follows its name.
        help: what it does, one line.
        anywhere: its options stand also behind its words.
    """

    name: str
    usage: str
    help: str
    slots: tuple[Slot, ...] = ()
    options: tuple[Option, ...] = ()
    anywhere: bool = False

    @property
    def line(self) -> str:
        """How it is typed."""
        return f"/{self.name} {self.usage}".rstrip()


_WHO = Slot("who", Kind.AGENT, needed=False)
_WORKER = Slot("who", Kind.WORKER, needed=False)
_TEXT = Slot("text", Kind.FREE, rest=True)
_PERHAPS = Slot("text", Kind.FREE, needed=False, rest=True)

VERBS: tuple[Verb, ...] = (
    Verb("msg", "[@NICK] TEXT", "Send an agent a message.", (_WHO, _TEXT)),
    Verb(
        "delegate",
        "[--skill SKILL] [@NICK] TEXT",
        "Give an agent a task; with a skill and no nick, whoever has it.",
        (_WHO, _TEXT),
        (Option("--skill", "skill", Kind.SKILL),),
    ),
    Verb(
        "spawn",
        "[TEMPLATE] [--workspace DIR] [--as MODE] [--autonomous] [--name NICK] [--project P] [--task TEXT]"
        " [--set KEY=VALUE]...",
        "Start a worker from a template: a name such as claude-code, or a file; without one, see what is offered.",
        (Slot("template", Kind.TEMPLATE, needed=False),),
        (
            Option("--workspace", "workspace", Kind.FOLDER),
            Option("-w", "workspace", Kind.FOLDER),
            Option("--as", "mode", Kind.MODE),
            Option("--branches", "branches", Kind.FREE, many=True),
            Option("--name", "name", Kind.FREE),
            Option("-n", "name", Kind.FREE),
            Option("--project", "project", Kind.PROJECT),
            Option("-p", "project", Kind.PROJECT),
            Option("--autonomous", "autonomous", Kind.FREE, alone=True),
            Option("--task", "task", Kind.FREE),
            Option("--sandbox", "sandbox", Kind.FREE),
            Option("--isolation", "isolation", Kind.FREE),
            Option("--set", "set", Kind.FREE, many=True),
            Option("--store-key", "store", Kind.FREE, alone=True),
        ),
        anywhere=True,
    ),
    Verb("approve", "[ID]", "Allow what an agent asks; without an id, see the first.", (
        Slot("id", Kind.APPROVAL, needed=False),
    )),
    Verb("deny", "ID [REASON]", "Refuse what an agent asks.", (
        Slot("id", Kind.APPROVAL), _PERHAPS,
    )),
    Verb("answer", "ID TEXT", "Answer the question of a task.", (
        Slot("id", Kind.QUESTION), _TEXT,
    )),
    Verb("diff", "[@NICK]", "Show what a worker changed in the folder that it works on.", (_WORKER,)),
    Verb("apply", "[--undo] [@NICK | ID]", "Merge what a worker did, after a question; or undo the last merge.", (
        _WORKER, Slot("id", Kind.TASK, needed=False),
    ), (Option("--undo", "undo", Kind.FREE, alone=True),), anywhere=True),
    Verb("policy", "[@NICK] [--allow 'PATTERN'] [--remove 'PATTERN']", "Show or change what a worker does unasked.", (
        _WORKER,
    ), (
        Option("--allow", "allow", Kind.FREE, many=True),
        Option("--remove", "remove", Kind.FREE, many=True),
    ), anywhere=True),
    Verb("alerts", "[clear [ID]]", "Show what went wrong; clear one, or all.", (
        Slot("what", Kind.CLEAR, needed=False), Slot("id", Kind.ALERT, needed=False),
    )),
    Verb("tree", "[@NICK | ID]", "Show a task with those it came from, and those that came of it.", (
        _WORKER, Slot("id", Kind.TASK, needed=False),
    )),
    Verb("task", "ID", "Show a task.", (Slot("id", Kind.TASK),)),
    Verb("cancel", "ID [REASON]", "Cancel a task.", (Slot("id", Kind.TASK), _PERHAPS)),
    Verb("interrupt", "[@NICK] [REASON]", "End the turn of a worker's agent.", (_WORKER, _PERHAPS)),
    Verb("stop", "[@NICK]", "Stop a worker; its inbox keeps what comes.", (_WORKER,)),
    Verb("restart", "[@NICK]", "Stop a worker and start it again.", (_WORKER,)),
    Verb("remove", "[@NICK]", "Stop a worker for good; its nick is free again.", (_WORKER,)),
    Verb("join", "#PROJECT", "Look at a project; a first post makes a new one.", (
        Slot("project", Kind.PROJECT),
    )),
    Verb("file", "PATH [TEXT]", "Send a file to where you are.", (
        Slot("path", Kind.PATH), _PERHAPS,
    )),
    Verb("search", "WORDS", "Find messages.", (_TEXT,)),
    Verb("who", "", "Say who is there."),
    Verb("log", "", "Show again what was said above this line."),
    Verb("help", "[COMMAND]", "Show all keys and commands, or one command.", (
        Slot("command", Kind.COMMAND, needed=False),
    )),
    Verb("quit", "", "Leave; everything goes on running."),
)  # fmt: skip

BY_NAME: Mapping[str, Verb] = {verb.name: verb for verb in VERBS}


@dataclass(frozen=True, slots=True)
class Command:
    """A command as it was typed.

    Attributes:
        values: of its words and options by name, without those that were not typed.
        many: of the options that may be given again.
    """

    verb: Verb
    values: Mapping[str, str] = field(default_factory=dict)
    many: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        """A value, "" for none."""
        return self.values.get(name, "")


@dataclass(frozen=True, slots=True)
class Plain:
    """A text to send."""

    text: str


def parse(line: str) -> Command | Plain:
    """What a typed line means: a command behind `/`, else a text; `//` begins a text that begins with `/`.

    Raises:
        InvalidInput: there is no such command, or it lacks something; the remedy says how it is typed.
    """
    if not line.startswith("/"):
        return Plain(line)
    if line.startswith("//"):
        return Plain(line[1:])
    name, rest = _word(line[1:])
    verb = BY_NAME.get(name)
    if verb is None:
        raise InvalidInput(f"there is no command /{one_line(name, 30)}", remedy=_nearest(name))
    return _Reading(verb, rest).command()


def _nearest(name: str) -> str:
    begun = [each for each in BY_NAME if name and each.startswith(name)]
    close = begun or get_close_matches(name, BY_NAME, n=3)
    if close:
        return "did you mean " + " or ".join(f"/{each}" for each in close) + "?"
    return "/help lists them; a text that begins with / is typed with //"


_WORD = re.compile(r"\S+")


def _word(text: str) -> tuple[str, str]:
    """The first word, and what follows it."""
    found = _WORD.search(text)
    if found is None:
        return "", ""
    return found[0], text[found.end() :].lstrip()


_PIECE = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""", re.DOTALL)


def quoted_word(text: str) -> tuple[str, str]:
    """The first word, in which quotes and backslashes work as in a shell, and what follows it.

    Raises:
        InvalidInput: a quote is not closed.
    """
    text = text.lstrip()
    found = _PIECE.match(text)
    if found is None or (found.end() < len(text) and not text[found.end()].isspace()):
        raise InvalidInput("a quote is not closed")
    return "".join(shlex.split(found[0])), text[found.end() :].lstrip()


class _Reading:
    """Reads what follows a command's name."""

    def __init__(self, verb: Verb, rest: str) -> None:
        self._verb = verb
        self._rest = rest.strip()
        self._values: dict[str, str] = {}
        self._many: dict[str, tuple[str, ...]] = {}

    def command(self) -> Command:
        for slot in self._verb.slots:
            self._read_options()
            self._read_slot(slot)
        if self._verb.anywhere:
            self._read_options()
        if self._rest:
            raise self._wrong(f"{one_line(self._rest, 30)!r} is too much")
        return Command(self._verb, self._values, self._many)

    def _wrong(self, why: str) -> InvalidInput:
        return InvalidInput(f"/{self._verb.name}: {why}", remedy=self._verb.line)

    def _read_slot(self, slot: Slot) -> None:
        if slot.rest:
            value, self._rest = self._rest, ""
        elif slot.kind in WHO and not self._rest.startswith("@"):
            value = ""
        elif slot.kind in (Kind.PATH, Kind.TEMPLATE) and self._rest:
            value, self._rest = quoted_word(self._rest)
        else:
            value, self._rest = _word(self._rest)
        if value in ("", "@", "#"):
            if slot.needed:
                raise self._wrong(f"what {_MISSING[slot.kind]}?")
            return
        self._values[slot.name] = value

    def _read_options(self) -> None:
        flags = {option.flag: option for option in self._verb.options}
        while self._rest.startswith("-") and flags:
            word, rest = _word(self._rest)
            flag, equals, value = word.partition("=")
            option = flags.get(flag)
            if option is None and not self._verb.anywhere:
                return  # a text may begin with a dash
            if option is None:
                raise self._wrong(f"there is no option {one_line(flag, 30)}")
            if option.alone:
                value, self._rest = "yes", rest
            elif equals:
                # The value again, with the quotes that `_word` does not know.
                value, self._rest = quoted_word(self._rest[len(flag) + 1 :] or " ")
            elif rest:
                value, self._rest = quoted_word(rest)
            else:
                raise self._wrong(f"{flag} needs a value")
            self._keep(option, value)

    def _keep(self, option: Option, value: str) -> None:
        if option.kind is Kind.MODE and value not in MODES:
            raise self._wrong(f"{option.flag} is one of {', '.join(MODES)}")
        if option.many:
            self._many[option.name] = (*self._many.get(option.name, ()), value)
        else:
            self._values[option.name] = value


_MISSING = {
    Kind.AGENT: "agent",
    Kind.WORKER: "worker",
    Kind.PROJECT: "project",
    Kind.APPROVAL: "id",
    Kind.TASK: "id",
    Kind.QUESTION: "id",
    Kind.TEMPLATE: "template",
    Kind.PATH: "file",
    Kind.COMMAND: "command",
    Kind.FREE: "text",
}


def help_lines(name: str = "") -> Iterator[tuple[str, str]]:
    """How each command is typed, and what it does; of one command only with its name.

    Raises:
        InvalidInput: there is no such command.
    """
    name = name.removeprefix("/")
    if name and name not in BY_NAME:
        raise InvalidInput(f"there is no command /{one_line(name, 30)}", remedy=_nearest(name))
    for verb in VERBS:
        if name in ("", verb.name):
            yield verb.line, verb.help
