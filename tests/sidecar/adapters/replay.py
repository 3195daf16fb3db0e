"""Recordings of real agents, played to their adapters.

A recording is `recordings/<adapter>/<case>.jsonl`, a step a line:

    {"dir": "turn"}                         a prompt is given
    {"dir": "out", "line": "..."}           the agent prints a line
    {"dir": "answer", "allow": true}        what it asked last is answered

One of another kind is `recordings/<agent>-acp.jsonl`: all messages in both directions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from postroom.protocol.events import EventKind
from postroom.sidecar.adapters.registry import _OURS, turn_adapter
from postroom.sidecar.adapters.turns import (
    Answer,
    Asked,
    Event,
    Setup,
    TurnAdapter,
    TurnSaid,
    Withdrawn,
    Write,
)
from postroom_a2a import strict_json

RECORDINGS = Path(__file__).parent / "recordings"
ADAPTERS = sorted(
    name for name, (module, _) in _OURS.items() if find_spec(f"postroom.sidecar.adapters.{module}")
)
CASES = sorted(
    str(path.relative_to(RECORDINGS))
    for pattern in ("*/*.jsonl", "*-acp.jsonl")
    for path in RECORDINGS.glob(pattern)
)

Feed = Callable[[TurnAdapter, bytes], list[TurnSaid]]


def made(name: str, **setup: Any) -> TurnAdapter:
    """An adapter that has said its first words."""
    adapter = turn_adapter(name)(Setup(("agent",), cwd="/work", home="/home/agent", **setup))
    adapter.begin()
    return adapter


def begin_turn(adapter: TurnAdapter, prompt: str = "do it") -> None:
    """Give it a prompt, as the sidecar does."""
    if not adapter.resident:
        adapter.command(prompt)
    adapter.turn(prompt)


def steps(case: str) -> list[dict[str, Any]]:
    """The steps of a recording."""
    records = [json.loads(line) for line in (RECORDINGS / case).read_text().splitlines()]
    return records if "/" in case else list(_steps_of_acp(records))


def _steps_of_acp(records: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for record in records:
        message = record["message"]
        if record["dir"] == "out":
            yield {"dir": "out", "line": json.dumps(message)}
        elif message.get("method") == "session/prompt":
            yield {"dir": "turn"}
        elif "result" in message:
            yield {"dir": "answer", "allow": True}


def adapter_of(case: str) -> str:
    """The name of the adapter that a recording is for."""
    return case.split("/", maxsplit=1)[0] if "/" in case else "acp"


def at_once(adapter: TurnAdapter, data: bytes) -> list[TurnSaid]:
    """Feed all of it."""
    return adapter.feed(data)


def play(
    adapter: TurnAdapter, recording: Iterable[dict[str, Any]], feed: Feed = at_once
) -> Iterator[TurnSaid]:
    """What the adapter makes of these steps."""
    asked = ""
    for step in recording:
        match step["dir"]:
            case "turn":
                begin_turn(adapter)
            case "answer":
                assert adapter.answer(asked, Answer(step["allow"]))
            case _:
                for said in feed(adapter, step["line"].encode() + b"\n"):
                    if isinstance(said, Asked):
                        asked = said.request
                    yield said


def played(case: str, feed: Feed = at_once, **setup: Any) -> list[TurnSaid]:
    """What a new adapter makes of a recording."""
    return list(play(made(adapter_of(case), **setup), steps(case), feed))


def events(said: Iterable[TurnSaid], *kinds: EventKind) -> list[Event]:
    """The events of these kinds."""
    return [item for item in said if isinstance(item, Event) and item.kind in kinds]


def check(said: Iterable[TurnSaid], turns: int) -> None:
    """Check what holds for every adapter whose program has ended: nothing is open, and all can be stored."""
    calls: set[str] = set()
    asked: set[str] = set()
    results = 0
    for item in said:
        match item:
            case Asked():
                strict_json.dumps({"input": dict(item.input), "options": item.options})
                asked.add(item.request)
            case Withdrawn():
                asked.remove(item.request)
            case Write():
                assert item.data.endswith(b"\n")
            case Event(EventKind.TOOL_CALL, fields):
                calls.add(fields["call"])
            case Event(EventKind.TOOL_RESULT, fields):
                calls.discard(fields["call"])
            case Event(EventKind.RESULT, fields):
                assert fields["status"] in ("completed", "failed", "interrupted")
                assert isinstance(fields["text"], str)
                results += 1
                assert not calls
                assert not asked
            case _:
                pass
        if isinstance(item, Event):
            strict_json.dumps(dict(item.fields))
    assert results == turns
    assert not calls
    assert not asked
