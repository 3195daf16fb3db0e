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
from postroom.protocol.operations import OPERATIONS
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
    """A word of a command; of kind `FREE` all that follows.

    Attributes:
        name: of its value.
        needed: an error without it.
    """

    name: str
    kind: Kind
    needed: bool = True


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
        by: names of the operations that do it (`protocol.operations`), first the one that it is for; none for what is
            the screen's own.
        usage: what follows its name; its words in capitals are the slots.
        own_help: what it does, one line, where its operation does not say that in the same words.
        who: what `@NICK` stands for.
        ids: what `ID` stands for.
        anywhere: its options stand also behind its words.
    """

    name: str
    by: str
    usage: str = ""
    own_help: str = ""
    options: tuple[Option, ...] = ()
    who: Kind = Kind.WORKER
    ids: Kind = Kind.TASK
    anywhere: bool = False

    @property
    def help(self) -> str:
        """What it does, one line."""
        return self.own_help or f"{OPERATIONS[self.by.partition(' ')[0]]['help']}."

    @property
    def line(self) -> str:
        """How it is typed."""
        return f"/{self.name} {self.usage}".rstrip()

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Its words but for options."""
        kinds = {**_KINDS, "nick": self.who, "id": self.ids}
        words = re.sub(r"\[--[^\]]*\]|[|.]", "", self.usage).split()
        named = ((word.strip("[]@#").lower(), word[0] != "[" and word[-1] != "]") for word in words)
        return tuple(Slot(name, kinds[name], needed) for name, needed in named)


_KINDS = {
    "clear": Kind.CLEAR,
    "command": Kind.COMMAND,
    "mode": Kind.MODE,
    "path": Kind.PATH,
    "project": Kind.PROJECT,
    "reason": Kind.FREE,
    "skill": Kind.SKILL,
    "template": Kind.TEMPLATE,
    "text": Kind.FREE,
    "words": Kind.FREE,
    "workspace": Kind.FOLDER,
}
"""What the slots and the fields of these names are."""


def _options(operation: str, **flags: str) -> tuple[Option, ...]:
    """Options for fields of an operation, each with its flags; the type of a field says whether it has a value."""
    types = {name: type_ for name, type_, _ in OPERATIONS[operation]["body"]}  # ty: ignore
    return tuple(
        Option(
            flag,
            name,
            _KINDS.get(name, Kind.FREE),
            many=types[name] in ("list", "object"),
            alone=types[name] == "bool",
        )
        for name, each in flags.items()
        for flag in each.split()
    )


VERBS: tuple[Verb, ...] = (
    Verb("msg", "messages.send", "[@NICK] TEXT", "Send an agent a message.", who=Kind.AGENT),
    Verb("delegate", "tasks.delegate", "[--skill SKILL] [@NICK] TEXT",
        "Give an agent a task; with a skill and no nick, whoever has it.",
        _options("tasks.delegate", skill="--skill"), who=Kind.AGENT),
    Verb("spawn", "workers.spawn credentials.list credentials.add tasks.delegate",
        "[TEMPLATE] [--workspace DIR] [--as MODE] [--autonomous] [--name NICK] [--project P] [--task TEXT]"
        " [--set KEY=VALUE]...",
        "Start a worker from a template: a name such as claude-code, or a file; without one, see what is offered.",
        (
            *_options("workers.spawn", workspace="--workspace -w", mode="--as", branches="--branches",
                name="--name -n", project="--project -p", autonomous="--autonomous"),
            Option("--task", "task", Kind.FREE),
            *_options("workers.spawn", sandbox="--sandbox", isolation="--isolation", set="--set"),
            Option("--store-key", "store", Kind.FREE, alone=True),
        ), anywhere=True),
    Verb("approve", "approvals.control approvals.show", "[ID]",
        "Allow what an agent asks; without an id, see the first.", ids=Kind.APPROVAL),
    Verb("deny", "approvals.control approvals.show", "ID [REASON]", "Refuse what an agent asks.",
        ids=Kind.APPROVAL),
    Verb("answer", "tasks.answer", "ID TEXT", ids=Kind.QUESTION),
    Verb("diff", "workspaces.diff", "[@NICK]", "Show what a worker changed in the folder that it works on."),
    Verb("apply", "workspaces.apply workspaces.apply_task", "[--undo] [@NICK | ID]",
        "Merge what a worker did, after a question; or undo the last merge.",
        _options("workspaces.apply", undo="--undo"), anywhere=True),
    Verb("policy", "approvals.policy approvals.allow approvals.forget",
        "[@NICK] [--allow 'PATTERN'] [--remove 'PATTERN']", "Show or change what a worker does unasked.",
        (
            Option("--allow", "allow", Kind.FREE, many=True),
            Option("--remove", "remove", Kind.FREE, many=True),
        ), anywhere=True),
    Verb("alerts", "alerts.list alerts.clear alerts.clear_all", "[clear [ID]]",
        "Show what went wrong; clear one, or all.", ids=Kind.ALERT),
    Verb("tree", "tasks.show tasks.list", "[@NICK | ID]",
        "Show a task with those it came from, and those that came of it."),
    Verb("task", "tasks.show tasks.events tasks.messages", "ID", "Show a task."),
    Verb("cancel", "tasks.cancel", "ID [REASON]"),
    Verb("interrupt", "approvals.control", "[@NICK] [REASON]", "End the turn of a worker's agent."),
    Verb("stop", "workers.stop", "[@NICK]", "Stop a worker; its inbox keeps what comes."),
    Verb("restart", "workers.restart", "[@NICK]", "Stop a worker and start it again."),
    Verb("remove", "workers.remove", "[@NICK]", "Stop a worker for good; its nick is free again."),
    Verb("join", "feeds.projects feeds.happened", "#PROJECT",
        "Look at a project; a first post makes a new one."),
    Verb("file", "blobs.put messages.send feeds.post", "PATH [TEXT]", "Send a file to where you are."),
    Verb("search", "messages.search feeds.posts", "WORDS", "Find messages."),
    Verb("who", "agents.list", own_help="Say who is there."),
    Verb("log", "", own_help="Show again what was said above this line."),
    Verb("help", "", "[COMMAND]", "Show all keys and commands, or one command."),
    Verb("quit", "", own_help="Leave; everything goes on running."),
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
        if slot.kind is Kind.FREE:
            value, self._rest = self._rest, ""
        elif slot.kind in WHO and not self._rest.startswith("@"):
            value = ""
        elif slot.kind in (Kind.PATH, Kind.TEMPLATE) and self._rest:
            value, self._rest = quoted_word(self._rest)
        else:
            value, self._rest = _word(self._rest)
        if value in ("", "@", "#"):
            if slot.needed:
                raise self._wrong(f"what {_CALLED.get(slot.name, slot.name)}?")
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


_CALLED = {"path": "file", "words": "text"}
"""Slots whose names people would not say."""


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
