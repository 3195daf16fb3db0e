"""What the tools say of agents, messages and tasks: short, and what others wrote stands behind bars. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from postroom.errors import PostroomError
from postroom.protocol.frame import message, quoted
from postroom.protocol.ids import MAX_ADDRESS
from postroom.protocol.parts import whole_text
from postroom.protocol.shapes import (
    Artifact,
    Grant,
    GrantRequest,
    KeyCode,
    Listed,
    Mail,
    Party,
    Principal,
    Task,
    TaskMessage,
    Webhook,
)
from postroom_a2a.text import one_line, printable

PAGE = 6000
"""Characters of one page of a long text."""

PIECE = 2000
"""Characters of a text of a task that are shown; its results have `PAGE`."""

MOST_AGENTS = 50
MOST_ANSWERS = 3
MOST_SKILLS = 50

DESCRIPTION = 200
"""Characters of what a card says of its agent."""


def me(principal: Principal) -> str:
    """Who the caller is."""
    until = f", until {principal['expires_at']}" if principal["expires_at"] else ""
    return (
        f"You are @{principal['nick']} ({principal['kind']}) in the organisation {principal['org']}, "
        f"uid {principal['uid']}. Your key allows: {', '.join(principal['scopes']) or 'nothing'}{until}."
    )


def agents(found: Sequence[Listed]) -> str:
    """Who is there; what a card says stands behind a bar."""
    lines = []
    for each in found[:MOST_AGENTS]:
        there = "online" if each["online"] else "away"
        lines.append(f"{who(each)} ({one_line(each['kind'], 20)}, {there})")
        if card := each["card"]:
            skills = ", ".join(one_line(str(skill.get("id", "")), 60) for skill in card["skills"])
            described = one_line(str(card.get("description", "")), DESCRIPTION)
            said = " ".join(filter(None, (described, f"Skills: {skills}." if skills else "")))
            lines += [quoted(said)] if said else []
    if len(found) > MOST_AGENTS:
        lines.append(f"{len(found) - MOST_AGENTS} more: narrow it by skill, text or kind.")
    return "\n".join(lines) or "There is nobody."


def capabilities(agent: Listed) -> str:
    """An agent with its skills; what its card says stands behind bars."""
    lines = [agents([agent]).partition("\n")[0]]
    card = agent["card"]
    if card is None:
        return f"{lines[0]}: it has no Agent Card."
    lines.append(quoted(_cut(str(card.get("description", "")), PIECE)))
    for skill in card["skills"][:MOST_SKILLS]:
        words = f"{skill.get('id', '')} ({skill.get('name', '')}): {skill.get('description', '')}"
        lines.append(quoted(one_line(words, DESCRIPTION)))
    if (more := len(card["skills"]) - MOST_SKILLS) > 0:
        lines.append(f"{more} more skills.")
    return "\n".join(lines)


def code(made: KeyCode, what: str) -> str:
    """What the owner does with a code."""
    return (
        f"Code {made['code']} is for {one_line(what, 90)}, until {made['expires_at']}. It opens nothing by itself: "
        f"your owner runs `postroom connect --claim {made['code']}`, once."
    )


def asked(answer: Mapping[str, Any]) -> str:
    """That an agent's owner is asked; "" for an answer that says that it is done."""
    if "approval" not in answer:
        return ""
    text, until = one_line(answer["text"], 200), answer["expires_at"]
    return f"{text} (approval {answer['approval']}, until {until}). You get mail."


def grants(found: Sequence[Grant], requests: Sequence[GrantRequest] = ()) -> str:
    """Who has let in whom, and who asks for it; a reason stands behind a bar."""
    lines = []
    for each in found[:MOST_AGENTS]:
        until = f" until {each['expires_at']}" if each["expires_at"] else ""
        lines.append(
            f"{each['id']}: {who(each['granter'])} has let in {who(each['grantee'])} for {', '.join(each['scopes'])}"
            f"{until} ({each['state']})"
        )
    if len(found) > MOST_AGENTS:
        lines.append(f"{len(found) - MOST_AGENTS} more.")
    for asked in requests[:MOST_AGENTS]:
        scopes = ", ".join(asked["scopes"])
        lines.append(
            f"{who(asked['grantee'])} asks {who(asked['granter'])} to be let in for {scopes}"
        )
        lines += [quoted(one_line(asked["reason"], DESCRIPTION))] if asked["reason"] else []
    return "\n".join(lines) or "Nobody is let in."


def webhook(made: Webhook) -> str:
    """A webhook; what signs it is never shown."""
    what = ", ".join(one_line(each, 40) for each in made["events"])
    return (
        f"Webhook {made['id']}: {one_line(made['url'], 300)} is told of {what}. "
        f"Your owner sees its secret by `postroom webhooks rotate {made['id']}`."
    )


def accepted(mail: Mail) -> str:
    """What became of a message that was sent just now."""
    note = f" {one_line(mail['note'], 300)}" if mail.get("note") else ""
    return f"Accepted: message {mail['id']} to {who(mail['to'])}.{note}"


def status(mail: Mail) -> str:
    """How far a message is."""
    how = mail.get("how") or mail["reason"]
    reason = f" ({one_line(how, 200)})" if how else ""
    return (
        f"Message {mail['id']} from {who(mail['from'])} to {who(mail['to'])}: "
        f"{one_line(mail['state'], 20)}{reason}, since {mail['updated_at']}."
    )


def page_of(mail: Mail, page: int, owner: str = "") -> tuple[str, bool]:
    """One page of a message, and whether it is the last one."""
    text = whole_text(mail["text"], mail["parts"])
    pages = max(1, -(-len(text) // PAGE))
    page = min(page, pages)
    piece = text[(page - 1) * PAGE : page * PAGE]
    shown, _ = message({**mail, "text": piece, "parts": []}, owner=owner, most=8 * PAGE)
    if page < pages:
        shown += (
            f"\nPage {page} of {pages}: a2a_read_message with page {page + 1} has the next one."
        )
    return shown, page == pages


def task(view: Task, messages: Sequence[TaskMessage] = ()) -> str:
    """A task: its state, the request, what its agent said and was answered, its results.

    Args:
        messages: those that belong to it, of which the newest answers are shown.
    """
    parties = f"From {who(view['requester'])} to {who(view['worker'])}"
    lines = [f"Task {view['id']}: {one_line(view['state'], 40)}. {parties}, {view['created_at']}."]
    if view["detail"]:
        lines.append(quoted(_cut(one_line(view["detail"]), PIECE)))
    lines += ["Request:", quoted(_cut(view["text"], PIECE), view.get("subject", ""))]
    if view["status_text"]:
        lines += [
            f"{who(view['worker'])} says:",
            quoted(_cut(view["status_text"], PIECE)),
        ]
    for said in [each for each in messages if each["kind"] == "answer"][-MOST_ANSWERS:]:
        author = who(said["from"]) if said["from"] else "Its requester"
        lines += [
            f"{author} answered:",
            quoted(_cut(whole_text(said["text"], said["parts"]), PIECE)),
        ]
    for each in view.get("artifacts", ()):
        lines += [_named(each), quoted(_cut(whole_text(each["text"], each["parts"]), PAGE))]
    if view.get("timed_out"):
        lines.append("It has not come so far yet: ask again later.")
    return "\n".join(lines)


def fault(error: PostroomError) -> str:
    """An error: what is wrong, and what helps."""
    remedy = f" {error.remedy[0].upper()}{error.remedy[1:]}." if error.remedy else ""
    return printable(f"{error.message}.{remedy}")


def who(party: Party) -> str:
    """`@nick`, or the uid of who has none."""
    return one_line(f"@{party['nick']}" if party["nick"] else party["uid"], MAX_ADDRESS)


def _named(artifact: Artifact) -> str:
    return f"Result {one_line(artifact['name'] or artifact['id'], 80)}:"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most} characters more)"
