"""Approvals, what may be chosen as an answer, and the policy of a worker. Agents wrote it, so it is made harmless."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from postroom.lines.inputs import input_rows, texts_of, visible
from postroom.lines.rows import Row, Style, lines_of, painted
from postroom.lines.words import Cell, address, ago, clock, span
from postroom.protocol.autonomy import Autonomy
from postroom.protocol.patterns import suggest, why_not
from postroom.protocol.shell import rule_of
from postroom.view.tasks import short
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.protocol.shapes import Approval, ApprovalAnswer, Policy, SetAutonomy

PENDING_HEAD = ("ID", "WORKER", "ASKED", "TOOL", "WHAT", "EXPIRES")
HISTORY_HEAD = ("ID", "WORKER", "DECISION", "WHAT")

COLOURS = {"pending": "yellow", "allowed": "green", "edited": "green", "denied": "red"}

LATE = "too late"

_COMMANDS = ("command", "cmd", "script")
_PATHS = ("file_path", "path", "notebook_path", "filename")


def pending_row(approval: Approval, now: float) -> list[Cell]:
    """An approval in a table under `PENDING_HEAD`."""
    expires = approval["expires_at"]
    return [
        Cell(short(approval["id"]), "yellow", bold=True),
        Cell(address(approval["worker"])),
        Cell(ago(approval["asked_at"], now)),
        Cell(approval["tool"]),
        Cell(what(approval)),
        Cell(
            ""
            if expires is None
            else f"in {span(parse_time(expires) - now)}: {approval['default']}"
        ),
    ]


def history_rows(approval: Approval, now: float) -> list[list[Cell]]:
    """An approval in a table under `HISTORY_HEAD`, below it by whom and why, and each answer that came too late."""
    state, answer = approval["state"], approval["answer"]
    shown = state if state != "expired" else f"expired: {approval['default']}"
    asked = f"{approval['tool']}: {what(approval)}"
    head = [Cell(short(approval["id"])), Cell(address(approval["worker"]))]
    rows = [[*head, Cell(shown, COLOURS.get(state)), Cell(asked)]]
    rows += _below(answer, now) if answer is not None else []
    for each in approval["late"]:
        rows += [[Cell(""), Cell(""), Cell(each["decision"], dim=True), Cell(LATE, dim=True)]]
        rows += _below(each, now)
    return rows


def _below(answer: ApprovalAnswer, now: float) -> list[list[Cell]]:
    over = f" over {one_line(answer['channel'], 40)}" if answer["by"] else ""
    said = [f"by {decider(answer)}{over}, {clock(answer['at'], now)}"]
    said += [f"why: {answer['reason']}"] if answer["reason"] else []
    return [[Cell(""), Cell(""), Cell(""), Cell(f"  {each}", dim=True)] for each in said]


def decider(answer: ApprovalAnswer) -> str:
    """`@nick` of a person, or what has decided by itself."""
    return address(answer["by"]) if answer["by"] else f"the {one_line(answer['channel'], 40)}"


def what(approval: Approval) -> str:
    """What is to be done, on one line."""
    given = approval["input"]
    command = next((_command(given[key]) for key in _COMMANDS if key in given), "")
    path = next((given[key] for key in _PATHS if isinstance(given.get(key), str)), "")
    said = command or approval["title"] or path or json.dumps(given)
    return one_line(said, 300)


def outcome(approval: Approval, now: float) -> str:
    """How it stands: `allowed by @maria at 12:00:00 over cli (why)`."""
    answer = approval["answer"]
    state = one_line(approval["state"], 40)
    if answer is None:
        return state
    why = f" ({one_line(answer['reason'], 300)})" if answer["reason"] else ""
    return f"{state} by {decider(answer)} at {clock(answer['at'], now)} over {one_line(answer['channel'], 40)}{why}"


def ending(approval: Approval) -> str:
    """How it came that it waits no more: `allowed by @maria over cli (why)`."""
    answer = approval["answer"]
    name = address(approval["worker"])
    channel = answer["channel"] if answer is not None else ""
    if answer is None or approval["state"] == "pending":
        return one_line(approval["state"], 40)
    match channel:
        case "policy":
            return f"{one_line(approval['state'], 40)} by the rules of {name}"
        case "agent":
            return f"withdrawn: {name} no longer asks"
        case "room":
            return f"withdrawn: what {name} asked it for has ended"
        case "clock":
            return f"expired, which counts as {one_line(approval['default'], 40)}"
    why = f" ({one_line(answer['reason'], 300)})" if answer["reason"] else ""
    return (
        f"{one_line(approval['state'], 40)} by {decider(answer)} over {one_line(channel, 40)}{why}"
    )


def explained(pattern: str, nick: str) -> str:
    """What a pattern of tools will allow, in a sentence (`protocol.patterns`).

    Args:
        nick: of the worker, as people address it.
    """
    tool, _, argument = pattern.strip().partition("(")
    tool, argument = visible(tool.strip()), argument.removesuffix(")")
    named = rule_of(argument).commands
    if len(named) > 1 or any(each.folder for each in named):
        each = "; ".join(
            visible(f"{one.text} (in {one.folder})" if one.folder else one.text) for one in named
        )
        any_text = " (* is any text)" if "*" in argument else ""
        return f"From now on {nick} uses {tool} without asking for each of these by itself{any_text}: {each}"
    argument = visible(argument)
    if not argument:
        return f"From now on {nick} uses {tool} without asking, whatever for."
    if "*" in argument:
        return f"From now on {nick} uses {tool} without asking where it fits {argument} (* is any text)."
    return f"From now on {nick} uses {tool} without asking for exactly this: {argument}"


def refused(approval: Approval) -> str:
    """Why no rule can allow what is asked, "" where one can: `not by a rule: it has a redirection to out.txt`."""
    why = why_not(approval)
    return f"not by a rule: {visible(why)}" if why else ""


def always_hint(approval: Approval) -> str:
    """What `a` does where a person answers in lines: `a: always Bash(npm test)`, or why it does nothing."""
    pattern = suggest(approval)
    return f"a: always {visible(pattern)}" if pattern else f"a: {refused(approval)}"


def details(approval: Approval, now: float, width: int | None) -> Iterator[str]:
    """All that a person has to know before they decide, as lines of at most `width` columns, None for no limit."""
    for row in detail_rows(approval, now):
        yield from painted(row, width)


def detail_rows(approval: Approval, now: float) -> Iterator[Row]:
    """The same as rows."""
    task = f" for task {short(approval['task'])}" if approval["task"] else ""
    asks = "asks" if approval["kind"] == "question" else f"asks to use {visible(approval['tool'])}"
    head = f"{short(approval['id'])} {address(approval['worker'])} {asks}{task}"
    yield Row.of(head, Style.STRONG, wraps=True)
    yield from asked_rows(approval, now)
    expires = approval["expires_at"]
    if approval["state"] == "pending" and expires is not None:
        left = span(parse_time(expires) - now)
        said = f"in {left} it expires, which counts as {one_line(approval['default'])}"
        yield Row.of(said, indent=2, wraps=True)


def asked_rows(approval: Approval, now: float) -> Iterator[Row]:
    """What is to be done, the command first, why, and how it stands; what the agent says twice stands once."""
    given, title, reason = approval["input"], approval["title"], approval["reason"]
    said = {" ".join(text.split()) for text in texts_of(given)}
    asks = approval["kind"] == "question"
    new = " ".join(title.split()) not in {"", *said}
    titled = [Row.of(visible(line), indent=2, wraps=True) for line in lines_of(title)]
    if asks:
        yield from titled
    if given or not title:
        yield from input_rows(given)
    if new and not asks:
        yield from titled
    if " ".join(reason.split()) not in {"", " ".join(title.split()), *said}:
        yield Row.of(f"why: {visible(reason)}", indent=2, wraps=True)
    if approval["state"] != "pending":
        yield Row.of(outcome(approval, now), indent=2, wraps=True)
    elif not asks and (why := refused(approval)):
        yield Row.of(why, Style.DIM, indent=2, wraps=True)


def _command(value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
        return shlex.join(value)
    return value if isinstance(value, str) else ""


# ── what may be chosen ──

MARK = "- "
"""Before each choice, where a question is one text."""


@dataclass(frozen=True, slots=True)
class OfferedAnswer:
    """One answer that the agent offers, with its explanation; both are the agent's words."""

    label: str
    about: str = ""


def choices_of(given: Mapping[str, Any]) -> list[OfferedAnswer]:
    """What may be chosen as the answer to the questions in an input; several questions have none together."""
    questions = [each for each in _list(given.get("questions")) if isinstance(each, Mapping)]
    if len(questions) != 1:
        return []
    found = (each for each in _list(questions[0].get("options")) if isinstance(each, Mapping))
    choices = (
        OfferedAnswer(_text(each.get("label")), _text(each.get("description"))) for each in found
    )
    return [choice for choice in choices if choice.label.strip()]


def choices_in(text: str) -> list[OfferedAnswer]:
    """The choices at the end of a question that is one text: two lines or more that begin with `- `."""
    lines = lines_of(text)
    first = len(lines)
    while first and lines[first - 1].startswith(MARK):
        first -= 1
    found = [OfferedAnswer(line.removeprefix(MARK).strip()) for line in lines[first:]]
    return found if len(found) > 1 and first else []


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# ── policies ──

POLICY_HEAD = ("RULE", "PATTERN", "FROM")


def policy_rows(policy: Policy, now: float) -> list[list[Cell]]:
    """The rules in a table under `POLICY_HEAD`, in the order in which they count."""
    template = Cell(origin(policy), dim=True)
    rows = [[Cell("deny", "red"), Cell(visible(each)), template] for each in policy["auto_deny"]]
    rows += [
        [Cell("allow", "green"), Cell(visible(each)), template] for each in policy["auto_approve"]
    ]
    rows += [
        [
            Cell("allow", "green"),
            Cell(visible(each["pattern"])),
            Cell(f"added by {address(each['by'])} {ago(each['at'], now)}, kept by the post room"),
        ]
        for each in policy["added"]
    ]
    for each in policy["autonomy"]:
        if each["task"]:
            what = f"{_DONE[each['autonomy']]} in task {short(each['task'])}, until it ends"
            rows.append([_verb(each["autonomy"]), Cell(what), _set(each, now)])
    word, kept = autonomy_of(policy)
    source = template if kept is None else _set(kept, now)
    if word == Autonomy.EDITS:
        rows.append([_verb(word), Cell(_DONE[word]), source])
    last = _verb(word if word == Autonomy.ALL else Autonomy.ASK)
    return [*rows, [last, Cell("everything else", dim=True), source]]


_DONE = {"all": "everything", "edits": "edits of files in its folder", "ask": "everything"}


def autonomy_of(policy: Policy) -> tuple[str, SetAutonomy | None]:
    """How much is done unasked in all turns, and who has set that; None where the template says it."""
    kept = next((each for each in policy["autonomy"] if not each["task"]), None)
    if kept is not None:
        return kept["autonomy"], kept
    return (Autonomy.ALL if policy["autonomous"] else Autonomy.ASK), None


def autonomy_lines(policy: Policy, now: float) -> list[str]:
    """How much it does unasked, and who has set that."""
    word, kept = autonomy_of(policy)
    by = origin(policy) if kept is None else _set(kept, now).text
    name = address(policy["worker"])
    lines = [f"{name}: {word} ({by})"]
    return lines + [
        f"{name}: {each['autonomy']} until task {short(each['task'])} ends ({_set(each, now).text})"
        for each in policy["autonomy"]
        if each["task"]
    ]


def _verb(word: str) -> Cell:
    return Cell("ask", "yellow") if word == Autonomy.ASK else Cell("allow", "green")


def _set(kept: SetAutonomy, now: float) -> Cell:
    return Cell(f"set by {address(kept['by'])} {ago(kept['at'], now)}")


def origin(policy: Policy) -> str:
    """The template of a worker, by the name of its file."""
    name = one_line(PurePath(policy["template"]).name, 80)
    return f"template {name}" if name else "its template"
