"""The interface of adapters for coding agents, which work in turns: a prompt, what they do, a result. Pure.

A turn is for one message or one task. `sidecar.turns` runs them: it starts the program, writes what the adapter gives
it, and carries out what the adapter makes of the program's output.

Two kinds of programs: one that is `resident` runs all the time and takes one turn after the other on its standard
input, which stays open; another is started anew for each turn and goes on in its session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from postroom.protocol.events import EventKind
from postroom.protocol.template import McpServer
from postroom.sidecar.adapters.adapter import End


@dataclass(frozen=True, slots=True)
class Event:
    """Something that the agent does.

    An event of kind RESULT ends the turn. Every turn has one, and so has an adapter whose program ends in a turn
    (`finish`); tool calls that are still open get a TOOL_RESULT before it.

    Attributes:
        fields: as `protocol.events` has them for the kind; texts are not cut.
        raw: the source line, "" for an event that the adapter concluded.
    """

    kind: EventKind
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)
    raw: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes for the agent's standard input, at once: the adapter's part of a protocol in both directions."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Asked:
    """The agent asks before it acts, or asks a question; it waits for `TurnAdapter.answer`.

    Attributes:
        request: the agent's own id of the request, unique among those that are open.
        question: the agent wants words, not a permission; `title` is the question.
        call: id of the tool call that it is about, "" if that is not known.
        options: for a question, the answers that the agent offers; may be empty.
        fixed: the agent's protocol has no place for another input: it is allowed as it is, or denied.
    """

    request: str
    tool: str
    title: str
    input: Mapping[str, Any] = field(default_factory=dict, hash=False)
    reason: str = ""
    call: str = ""
    question: bool = False
    options: tuple[str, ...] = ()
    fixed: bool = False
    raw: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The agent no longer waits for the answer to a request."""

    request: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request.

    Attributes:
        allow: what `Asked` asks for may be done; True with words for a question.
        input: in place of the tool's input; None for the input as it was asked.
        text: the reason of a denial, or the answer to a question.
    """

    allow: bool
    input: Mapping[str, Any] | None = field(default=None, hash=False)
    text: str = ""


TurnSaid = Event | Write | Asked | Withdrawn


@dataclass(frozen=True, slots=True)
class Setup:
    """What an adapter is made with, for one run of its program.

    Attributes:
        command: program and arguments, as the template has them; the adapter adds what its protocol needs.
        cwd: the agent's working folder.
        home: its home folder, which outlives restarts.
        session: id of the session to go on with, "" for a new one.
        instructions: what the agent is to know of its colleagues and of `postroom-agent`; "" for nothing.
        mcps: MCP servers for the agent's own configuration.
        autonomous: the agent is to ask for nothing.
    """

    command: tuple[str, ...]
    cwd: str = ""
    home: str = ""
    session: str = ""
    instructions: str = ""
    mcps: Sequence[McpServer] = ()
    autonomous: bool = False


class TurnAdapter(Protocol):
    """One run of a coding agent's program.

    Attributes:
        resident: the program runs all the time; else `command` has the prompt's turn, and the input is closed after it.
        session: id of the session, once known; "" before. It is the one to go on with after a restart.
    """

    resident: bool
    session: str

    def files(self) -> Mapping[str, str]:
        """The agent's own configuration: path below its home to content, written before the program is started.

        Instructions and MCP servers go where this agent reads them.
        """

    def environment(self) -> Mapping[str, str]:
        """Variables that the program needs."""

    def command(self, prompt: str = "") -> tuple[str, ...]:
        """Program and arguments, with the prompt where the program takes it as an argument."""

    def begin(self) -> bytes:
        """Its stdin at the start: the beginning of a handshake, b"" for none."""

    def turn(self, prompt: str) -> bytes:
        """Its stdin for a turn. b"" while a handshake goes on: then `feed` gives a `Write` with it in time."""

    def interrupt(self) -> bytes:
        """Its stdin to end the turn; b"" where only SIGINT does that."""

    def answer(self, request: str, answer: Answer) -> bytes:
        """Its stdin for the answer to a request; b"" for one that is not open."""

    def feed(self, data: bytes) -> list[TurnSaid]:
        """What the next bytes of its stdout mean, cut anywhere; never an exception.

        A line that is not what the protocol has becomes an event TEXT or RAW with the line in `raw`; an over-long line
        an event ERROR with its beginning; the next line is read as usual.
        """

    def finish(self, end: End) -> list[TurnSaid]:
        """What its end implies: the rest of its output, results of open tool calls, and the result of an open turn.

        The result is decided by, in this order: a result that was said, an error that was said, the exit code, the
        signal.
        """
