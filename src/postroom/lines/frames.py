"""A frame of the bus in words. Pure."""

from __future__ import annotations

from collections.abc import Callable

from postroom.errors import InvalidInput
from postroom.protocol.audit import DENIED, IN
from postroom.protocol.subjects import Subject, parse

_SENT = {
    "inbox": ("sent a message to {to}", "send a message to {to}"),
    "priority": ("sent an urgent message to {to}", "send an urgent message to {to}"),
    "rpc": ("asked {to}", "ask {to}"),
    "receipts": ("sent a receipt to {to}", "send a receipt to {to}"),
    "tasks": ("said that its task is {state}", "say that its task is {state}"),
    "outbox": ("made an announcement", "make an announcement"),
    "status": ("reported its state", "report its state"),
    "feed": ("posted in #{project}", "post in #{project}"),
    "alerts": ("raised an alert", "raise an alert"),
    "discovery": ("made its card known", "make its card known"),
    "ctl": ("asked the control plane {ask}", "ask the control plane {ask}"),
}
_GOT = {
    "inbox": "got a message from {by}",
    "priority": "got an urgent message from {by}",
    "rpc": "was asked by {by}",
    "receipts": "got a receipt from {by}",
    "feed": "got a post of {by} in #{project}",
    "discovery": "got the card of {by}",
}
_ASKED = {
    "tasks.open": "for its tasks",
    "tasks.get": "for a task",
    "tasks.list": "for a list of tasks",
    "tasks.page": "for a list of tasks",
    "tasks.changes": "what changed in a task",
    "tasks.choose": "who can do a task",
    "tasks.cancel": "to cancel a task",
    "tasks.answer": "to pass on an answer",
    "credential.renew": "to renew its credential",
    "cards.find": "for agents with a skill",
    "cards.get": "for the card of an agent",
    "agents.resolve": "for the address of an agent",
}
_PLACES = {"inbox", "priority", "receipts", "tasks", "outbox", "status", "events", "rpc"}
_VERBS = {"PUB", "HPUB", "MSG", "HMSG", "SUB"}


def frame_words(
    verb: str,
    subject: str,
    own: str,
    name: Callable[[str], str],
    *,
    direction: str = "",
    verdict: str = "",
) -> str:
    """What agent `own` did, or tried, without its name; "" for a frame that has no words.

    Args:
        verb, subject, direction, verdict: as in the audit log.
        name: gives the name of a uid.
    """
    if verb not in _VERBS:
        return ""
    try:
        said = parse(subject)
    except InvalidInput:
        said = None
    if verdict == DENIED:
        return f"tried to {_attempt(verb, subject, said, own, name)}"
    if said is None or verb == "SUB":
        return ""
    if direction == IN:
        return _filled(_GOT.get(said.kind, ""), said, name)
    return _filled(_SENT.get(said.kind, ("", ""))[0], said, name)


def attempt(verb: str, subject: str, own: str, name: Callable[[str], str]) -> str:
    """What agent `own` was refused, for an alert, e.g. "it tried to read somebody else's inbox"."""
    return f"it {frame_words(verb, subject, own, name, verdict=DENIED)}"


def _attempt(
    verb: str, subject: str, said: Subject | None, own: str, name: Callable[[str], str]
) -> str:
    if verb != "SUB" and said is not None and said.sender == own and said.kind in _SENT:
        return _filled(_SENT[said.kind][1], said, name)
    act = "read" if verb == "SUB" else "write to"
    tokens = subject.split(".")
    if tokens[0] == "worker" and len(tokens) > 2 and tokens[2] in _PLACES:
        place = {"priority": "urgent messages", "rpc": "requests"}.get(tokens[2], tokens[2])
        if tokens[1] != own:
            return f"{act} somebody else's {place}"
        return f"{act} its own {place}"
    return f"{act} {subject}"


def _filled(words: str, said: Subject, name: Callable[[str], str]) -> str:
    verb = ".".join(said.rest)
    return words.format(
        to=name(said.recipient),
        by=name(said.sender),
        project=said.project,
        state=said.rest[-1] if said.rest else "",
        ask=_ASKED.get(verb, f"for {verb}"),
    )
