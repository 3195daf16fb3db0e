"""What the fake model does: read from the last text of the user. Pure.

    RUN:[command]          a call of the agent's shell tool
    RUNS:[one;;two]        several calls of it, side by side
    CALL:[tool]=[{...}]    a call of the first tool offered whose name ends so; JSON that ends with the first `}]`
    EDIT:[file]=[text]     a call of its tool that writes a file (the path as the agent wants it: absolute for some)
    ASK:[question|a|b]     a call of its tool that asks the user, where it has one; else the question as text
    THINK:[text]           thoughts before the next step
    SAY:[text]             a text; the turn ends with the last one
    SLOW                   the next step waits until the test lets it go (`FakeModel.go`)
    FAIL  FAIL:[429|30]    HTTP 500, or that status, each time; with `Retry-After: 30`
    FAIL:[garbage]         HTTP 200, and what is no answer of a model; FAIL:[nothing] ends the connection without a word

    REPLY:[text]           in a message that somebody has sent it: an answer to that by Postroom's tool, before all else

Several are done in their order: each waits for the result of the tool call before it. A text without one of them is
answered `Hello from the fake model.`, and a turn of steps ends with `All done. <result of its last call>`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

HELLO = "Hello from the fake model."
_WORD = re.compile(
    r"EDIT:\[(?P<file>[^\]]*)\]=\[(?P<text>[^\]]*)\]"
    r"|CALL:\[(?P<tool>\w+)\]=\[(?P<arguments>\{.*?\})\]"
    r"|(?P<word>RUNS|RUN|ASK|THINK|SAY|FAIL):\[(?P<of>[^\]]*)\]"
    r"|\b(?P<bare>FAIL|SLOW)\b",
)
_MAIL = re.compile(r"message ([0-9a-f]{32}), [^|]*\| [^|]*?REPLY:\[([^\]]*)\]")
"""A message in its frame, with its id and the answer that it wants."""

_KEPT = 2000
"""Characters of a tool's result in the last text."""


@dataclass(frozen=True)
class Conversation:
    """What a request has of it, whatever the dialect.

    Attributes:
        user: the last text of the user.
        results: texts of the results of tool calls since then.
        tools: names of the tools that the model may call.
    """

    user: str
    results: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


@dataclass(frozen=True)
class Say:
    """A text; nothing follows."""

    text: str


@dataclass(frozen=True)
class Run:
    """A call of the shell tool."""

    command: str


@dataclass(frozen=True)
class Runs:
    """Several calls of the shell tool in one answer."""

    commands: tuple[str, ...]


@dataclass(frozen=True)
class Call:
    """A call of the first tool that is offered whose name ends so."""

    tool: str
    arguments: str


@dataclass(frozen=True)
class Edit:
    """A call of the tool that writes a file."""

    file: str
    text: str


@dataclass(frozen=True)
class Ask:
    """A call of the tool that asks the user."""

    question: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Fail:
    """The service fails with an HTTP status."""

    status: int
    retry_after: str = ""


Deed = Say | Run | Runs | Call | Edit | Ask | Fail


@dataclass(frozen=True)
class Step:
    """One answer of the model.

    Attributes:
        thought: said before it, "" for nothing.
        slow: it waits until the test lets it go.
    """

    deed: Deed
    thought: str = ""
    slow: bool = False


def next_step(conversation: Conversation, body: str = "") -> Step:
    """The answer to a request; `body` is all of it, in which there may be mail."""
    for message, text in _MAIL.findall(body) if conversation.tools else ():
        if not re.search(rf"message\W{{3,}}{message}", body):  # the arguments of an answer
            return Step(Call("a2a_reply", json.dumps({"message": message, "text": text})))
    steps = _steps(conversation.user)
    done = len(conversation.results)
    if not conversation.tools:
        # A side errand of the agent, such as a title for the session.
        return Step(Say("A title"))
    for step in steps:
        if done <= 0:
            return step
        done -= len(step.deed.commands) if isinstance(step.deed, Runs) else 1
    if not steps:
        return Step(Say(HELLO))
    last = conversation.results[-1] if conversation.results else ""
    return Step(Say(f"All done. {last[:_KEPT]}".rstrip()))


def _steps(text: str) -> list[Step]:
    steps: list[Step] = []
    thought, slow = "", False
    for word in _WORD.finditer(text):
        if word["bare"] == "SLOW":
            slow = True
        elif word["word"] == "THINK":
            thought = word["of"]
        else:
            steps.append(Step(_deed(word), thought, slow))
            thought, slow = "", False
    if slow or thought:
        steps.append(Step(Say(HELLO), thought, slow))
    return steps


GARBAGE, NOTHING = -1, -2
"""In place of the status of a `Fail`."""

_NONE = {"garbage": GARBAGE, "nothing": NOTHING}


def _deed(word: re.Match[str]) -> Deed:
    if word["file"] is not None:
        return Edit(word["file"], word["text"])
    if word["tool"]:
        return Call(word["tool"], word["arguments"])
    if word["bare"]:
        return Fail(500)
    of = word["of"]
    if word["word"] == "RUN":
        return Run(of)
    if word["word"] == "RUNS":
        return Runs(tuple(of.split(";;")))
    if word["word"] == "FAIL":
        status, _, after = of.partition("|")
        return Fail(_NONE.get(status) or int(status), after)
    if word["word"] == "SAY":
        return Say(of)
    question, *options = of.split("|")
    return Ask(question, tuple(options))


def offered(tool: str, tools: Sequence[str]) -> str:
    """The name under which an agent offers a tool; its own if it is not among them."""
    return next((name for name in tools if name.endswith(tool)), tool)
