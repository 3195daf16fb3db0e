"""Approvals and the policy of a worker as text of a terminal. Agents wrote it, so it is made harmless."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from postroom.lines.inputs import input_rows, texts_of, visible
from postroom.lines.rows import Row, Style, colour_of, painted
from postroom.lines.text import Cell
from postroom.protocol.approvals import IN_WORDS
from postroom.protocol.autonomy import Autonomy
from postroom.protocol.patterns import suggest, why_not
from postroom.protocol.shell import rule_of
from postroom.view.approvals import autonomy_of, decider, origin, outcome, what
from postroom.view.tasks import short
from postroom.view.words import address, ago, clock, lines_of, span
from postroom_a2a.text import one_line
from postroom_a2a.times import parse_time

if TYPE_CHECKING:
    from postroom.protocol.shapes import Approval, ApprovalAnswer, Policy, SetAutonomy

PENDING_HEAD = ("ID", "WORKER", "ASKED", "TOOL", "WHAT", "EXPIRES")
HISTORY_HEAD = ("ID", "WORKER", "DECISION", "WHAT")

LATE = "too late"


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
    rows = [[*head, Cell(shown, colour_of(state)), Cell(asked)]]
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
    asks = "asks" if approval["kind"] in IN_WORDS else f"asks to use {visible(approval['tool'])}"
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
    asks = approval["kind"] in IN_WORDS
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
