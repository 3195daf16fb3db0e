"""Cards, tasks and events of any A2A server in lines of text. Strangers wrote it all: it is made harmless here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from postroom.lines.parts import part_lines
from postroom.lines.words import Cell, block
from postroom.protocol.content import parts_of
from postroom.view.tasks import PIECE, colour_of
from postroom_a2a.messages import text_of, texts_of
from postroom_a2a.task_state import TaskState
from postroom_a2a.text import one_line

HEAD = ("ID", "STATE", "CONTEXT", "TASK", "LAST")

Record = Mapping[str, Any]


def state_of(holder: Record) -> str:
    """The state of a task or a status update, as Postroom spells it; "" for none that A2A has."""
    status = holder.get("status")
    try:
        return TaskState.from_a2a(status.get("state") if isinstance(status, Mapping) else None)
    except ValueError:
        return ""


def holder_of(said: Record) -> dict[str, Any]:
    """A message or an artifact as `lines.parts` shows it."""
    parts = parts_of(said)
    return {"text": text_of({"parts": parts}), "parts": parts}


def status_said(holder: Record) -> dict[str, Any]:
    """What was said with the state."""
    status = holder.get("status")
    message = status.get("message") if isinstance(status, Mapping) else None
    return holder_of(message) if isinstance(message, Mapping) else {"text": "", "parts": []}


def card_lines(card: Record, address: str, binding: str, version: str) -> Iterator[str]:
    """A card, and the interface of it that is called."""
    yield one_line(str(card.get("name", "")), 80)
    yield f"address      {one_line(address, 300)}"
    yield f"speaks       {one_line(binding, 40)}, A2A {one_line(version, 10)}"
    provider = card.get("provider")
    if isinstance(provider, Mapping) and provider.get("organization"):
        yield f"provider     {one_line(str(provider['organization']), 120)}"
    yield f"description  {one_line(str(card.get('description', '')), 300)}"
    able = card.get("capabilities")
    able = able if isinstance(able, Mapping) else {}
    words = {"streaming": "streams", "pushNotifications": "push notifications"}
    can = [word for name, word in words.items() if able.get(name) is True]
    yield f"can          {', '.join(can) or 'answer once'}"
    takes = card.get("defaultInputModes")
    if isinstance(takes, list):
        yield f"takes        {one_line(', '.join(map(str, takes)), 300)}"
    for skill in _objects(card.get("skills")):
        name = one_line(str(skill.get("id", "")), 80)
        yield f"skill        {name}: {one_line(str(skill.get('description', '')), 300)}"
    schemes = card.get("securitySchemes")
    if isinstance(schemes, Mapping) and schemes:
        yield f"asks for     {one_line(', '.join(map(str, schemes)), 300)}"


def task_row(task: Record) -> list[Cell]:
    """A task in a list."""
    state = state_of(task)
    said = status_said(task)["text"]
    return [
        Cell(one_line(str(task.get("id", "")), 40)),
        Cell(state or "-", colour_of(state)),
        Cell(one_line(str(task.get("contextId", "")), 40)),
        Cell(one_line(asked(task), 80)),
        Cell(one_line(said, 80)),
    ]


def asked(task: Record) -> str:
    """The text of the request, where the server shows it."""
    first = next(iter(_objects(task.get("history"))), {})
    return text_of({"parts": parts_of(first)})


def event_line(event: Record) -> str:
    """A change in a line; "" for one that shows nothing new."""
    if isinstance(held := event.get("statusUpdate") or event.get("task"), Mapping):
        state, said = state_of(held), status_said(held)
        label = click.style(state, fg=colour_of(state)) if state else ""
        rest = [said["text"], *part_lines(said)]
        return block(f"{label}: " if any(rest) else label, "\n".join(filter(None, rest)))
    if isinstance(update := event.get("artifactUpdate"), Mapping):
        artifact = update.get("artifact")
        artifact = artifact if isinstance(artifact, Mapping) else {}
        name = one_line(str(artifact.get("name") or artifact.get("artifactId") or ""), 60)
        more = " (more)" if update.get("append") else ""
        said = holder_of(artifact)
        return (
            f"artifact {name}{more}: {one_line(' '.join([said['text'], *part_lines(said)]), PIECE)}"
        )
    return ""


def artifacts_of(task: Record) -> list[dict[str, Any]]:
    """The artifacts of a task, each as `lines.parts` shows it, with a name."""
    return [
        {
            "name": one_line(str(each.get("name") or each.get("artifactId") or "")),
            "text": "".join(texts_of({"parts": parts_of(each)})),
            "parts": parts_of(each),
        }
        for each in _objects(task.get("artifacts"))
    ]


def _objects(value: object) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
