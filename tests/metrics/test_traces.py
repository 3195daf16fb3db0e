"""One trace over two workers, as an exporter gets it, from a real post room with workers in their sandboxes."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.conftest import PostRoom, running_room, until

pytestmark = pytest.mark.requirement("traces-one")

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = f"00-{TRACE}-00f067aa0ba902b7-01"

LEAD = """
import json, sys
def say(**line):
    print(json.dumps(line), flush=True)
for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] == "task":
        task, trace = line["id"], line.get("traceparent", "none")
        say(type="delegate", to="@second", text="what is your trace?", re=task)
    elif line["type"] == "task_update" and line["final"]:
        say(type="complete", task=task, text=trace + " " + line["artifacts"][0]["text"])
"""
SECOND = """
[worker]
name = "second"
[workstation]
command = ["sh", "-c", "cat >/dev/null; echo $TRACEPARENT"]
adapter = "text"
"""
FIRST = """
[worker]
name = "first"
[workstation]
command = ["python3", "/opt/agent/first.py"]
files = ["first.py"]
"""


@dataclass(frozen=True)
class Span:
    """A span as the exporter wrote it."""

    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    start: str
    end: str
    status: str

    @classmethod
    def of(cls, said: dict[str, Any]) -> Span:
        return cls(
            said["name"],
            said["context"]["trace_id"].removeprefix("0x"),
            said["context"]["span_id"].removeprefix("0x"),
            (said["parent_id"] or "").removeprefix("0x"),
            said["attributes"],
            said["start_time"],
            said["end_time"],
            said["status"]["status_code"],
        )


def exported(room: PostRoom) -> list[Span]:
    """Every span that the exporter has printed."""
    text = (room.state / "logs" / "up.log").read_text()
    decoder, found, at = json.JSONDecoder(), [], 0
    while (at := text.find('{\n    "name"', at)) >= 0:
        try:
            said, at = decoder.raw_decode(text, at)
        except ValueError:
            break  # it is being written
        found.append(Span.of(said))
    return found


@pytest.fixture(scope="module")
def room() -> Iterator[PostRoom]:
    with running_room(OTEL_TRACES_EXPORTER="console", OTEL_BSP_SCHEDULE_DELAY="20") as room:
        room.run("spawn", room.template(SECOND, "second"))
        room.run("spawn", room.template(FIRST, "first", first=LEAD))
        yield room


def call(room: PostRoom, path: str, body: dict[str, Any], trace: str) -> dict[str, Any]:
    server = room.server
    headers = {
        "Authorization": f"Bearer {server['token']}",
        "Content-Type": "application/json",
        "traceparent": trace,
    }
    asked = urllib.request.Request(server["url"] + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.loads(answer.read())


def result(room: PostRoom, task: str) -> str:
    shown: dict[str, Any] = {}
    until(lambda: shown.update(room.json("task", "show", task)) or shown["final"])
    assert shown["state"] == "completed", shown
    return str(shown["status_text"])


def test_a_task_and_what_its_worker_delegates_are_one_trace(room: PostRoom) -> None:
    before = {span.id for span in exported(room)}
    body = {"to": "@first", "text": "ask the second"}
    task = call(room, "/v1/tasks", body, CALLER)["id"]
    said = result(room, task)

    def new() -> list[Span]:
        return [span for span in exported(room) if span.trace == TRACE and span.id not in before]

    until(lambda: len(new()) >= 6)
    spans = {span.name: [] for span in new()}
    for span in sorted(new(), key=lambda each: each.start):
        spans[span.name].append(span)
    assert {name: len(found) for name, found in spans.items()} == {
        "POST /v1/tasks": 1,
        "publish": 1,
        "task wait": 2,
        "task turn": 2,
    }
    (http,), (publish,) = spans["POST /v1/tasks"], spans["publish"]
    assert http.parent == CALLER.split("-")[2]
    assert publish.parent == http.id
    (wait_one, wait_two), (turn_one, turn_two) = spans["task wait"], spans["task turn"]
    assert {wait_one.parent, turn_one.parent} == {publish.id}
    assert {wait_two.parent, turn_two.parent} == {turn_one.id}
    assert turn_one.attributes["postroom.task"] == task
    assert turn_one.attributes["postroom.state"] == "completed"
    assert turn_one.start <= wait_two.start <= turn_two.start <= turn_two.end <= turn_one.end
    # Both agents were told the trace, one in its line, one in its environment.
    assert said == f"00-{TRACE}-{publish.id}-01 00-{TRACE}-{publish.id}-01"


def test_a_malformed_trace_is_nobodys_and_the_task_gets_one_of_its_own(room: PostRoom) -> None:
    task = call(room, "/v1/tasks", {"to": "@second", "text": "x"}, "00-zz-00f067aa0ba902b7-01")[
        "id"
    ]

    def turn() -> list[Span]:
        return [s for s in exported(room) if s.attributes.get("postroom.task") == task]

    until(lambda: len(turn()) == 2)
    traces = {span.trace for span in turn()}
    assert len(traces) == 1
    assert traces != {TRACE}
    (http,) = [s for s in exported(room) if s.trace in traces and s.name == "POST /v1/tasks"]
    assert http.parent == ""


def test_looking_makes_no_spans(room: PostRoom) -> None:
    room.run("status")
    room.run("agents")
    assert not [span for span in exported(room) if span.name.startswith("GET")]
