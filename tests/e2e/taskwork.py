"""Agents for tasks that are killed in mid-work, and the log of tasks as it is on disk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from postroom.bus.nats import NatsAdmin, NatsBus
from postroom.bus.port import Message
from postroom.identity.trust import Trust
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.tasks import follows, parse_task_subject
from postroom.tasks.records import Link, TaskRecord
from postroom_a2a.task_state import TaskState, allowed
from tests.e2e.conftest import PostRoom

# Each task is "<kind> <name>", and `notes` in the workspace holds what was done of it.
#   quick    is done at once
#   slow     takes up to a second
#   hold     waits for the file go-<name>, and stops when it is canceled
#   ask      asks, and is done with the answer
#   pass     has @helper do the rest of the text, and is done when that is
#   keep     the same, but waits for the file go-<name> when it was told
#   quit     ends the program
AGENT = """
import json, os, pathlib, queue, random, sys, threading, time

passed, mine, canceled = {}, {}, set()
lines = queue.Queue()

def say(**line):
    print(json.dumps(line), flush=True)

def note(text):
    with open("notes", "a") as file:
        file.write(text + "\\n")

def read():
    for raw in sys.stdin:
        line = json.loads(raw)
        if line["type"] == "stop":
            os._exit(0)
        if line["type"] == "cancel":
            canceled.add(line["task"])
        lines.put(line)
    os._exit(0)

def hold(task, name):
    note("holds " + name)
    while not pathlib.Path("go-" + name).exists() and task not in canceled:
        time.sleep(0.01)

def finish(task, name, text=""):
    if task in canceled:
        note("stopped " + name)
        say(type="canceled", task=task)
        return
    note("did " + name)
    say(type="complete", task=task, text=text or "did " + name)

threading.Thread(target=read, daemon=True).start()
while True:
    line = lines.get()
    kind, _, name = line.get("text", "").partition(" ")
    if line["type"] == "input":
        finish(line["task"], "asked", line["text"])
    elif line["type"] == "cancel" and line["task"] in mine:
        finish(line["task"], mine.pop(line["task"])[1])
    elif line["type"] == "delegated":
        passed[line["task"]] = line["ref"]
    elif line["type"] == "task_update" and line["final"]:
        own = passed.pop(line["task"], line["ref"])
        note("told " + line["text"])
        if own in mine:
            keeps, own_name = mine.pop(own)
            if keeps:
                hold(own, own_name.split()[-1])
            finish(own, own_name, line["text"])
    elif line["type"] == "task":
        task = line["id"]
        note("begins " + name)
        if kind == "quick":
            finish(task, name)
        elif kind == "slow":
            time.sleep(random.uniform(0.0, 0.8))
            finish(task, name)
        elif kind == "hold":
            hold(task, name)
            finish(task, name)
        elif kind == "ask" and len(line.get("history", ())) > 2:
            finish(task, name, line["history"][-1]["text"])
        elif kind == "ask":
            say(type="ask", task=task, text="which?")
        elif kind in ("pass", "keep"):
            mine[task] = (kind == "keep", name)
            say(type="delegate", to="@helper", text=name, ref=task)
        elif kind == "quit":
            os._exit(3)
"""

TEMPLATE = """
[worker]
name = "{name}"
[workstation]
command = ["python3", "/opt/agent/{name}.py"]
files = ["{name}.py"]
[sidecar]
restart_limit = {restarts}
"""


@dataclass(frozen=True, slots=True)
class Station:
    """A worker that runs `AGENT`, and its workspace."""

    nick: str
    uid: str
    folder: Path

    @property
    def notes(self) -> list[str]:
        """What its agents have written down, in their order."""
        file = self.folder / "notes"
        return file.read_text().splitlines() if file.exists() else []

    def let_go(self, name: str) -> None:
        """Let a task that holds be done."""
        (self.folder / f"go-{name}").touch()


def station(room: PostRoom, nick: str, restarts: int = 3, program: str = AGENT) -> Station:
    """Start a worker that runs `AGENT`."""
    text = TEMPLATE.format(name=nick, restarts=restarts)
    room.run("spawn", room.template(text, nick, **{nick: program}))
    with room.client() as client:
        uid = client.worker(nick)["uid"]
    return Station(nick, uid, room.state / "workers" / uid / "workspace")


@dataclass(slots=True)
class Chronicle:
    """The records of one task in TASKS, in their order."""

    worker: str
    id: str
    records: list[tuple[Message, TaskRecord, TaskState]] = field(default_factory=list)

    @property
    def states(self) -> list[str]:
        return [state.value for _, _, state in self.records]

    @property
    def ends(self) -> int:
        """Terminal records."""
        return sum(state.terminal for _, _, state in self.records)

    def faults(self) -> Iterator[str]:
        """What is against the rules, one sentence each."""
        last, before, attempt = 0, None, 0
        for message, record, state in self.records:
            where = f"task {self.id}, record {message.sequence} ({state.value})"
            if not follows(message.metadata, self.worker, self.id, last):
                yield f"{where}: it does not follow {last}"
            if not allowed(before, state):
                yield f"{where}: not after {before}"
            if record.id != self.id or record.state is not state:
                yield f"{where}: it says it is {record.id}, {record.state.value}"
            if record.attempt < attempt or record.attempt > attempt + 1:
                yield f"{where}: attempt {record.attempt} after {attempt}"
            last, before, attempt = message.sequence, state, record.attempt
        if self.ends != 1:
            yield f"task {self.id} has {self.ends} ends: {self.states}"


@asynccontextmanager
async def log_of(room: PostRoom) -> AsyncGenerator[NatsAdmin]:
    """The log of a post room that runs."""
    credential = Trust.load_or_create(room.state / "keys").core_credential()
    bus = await NatsBus.connect(
        room.server["nats_url"],
        uid=CONTROL_PLANE,
        jwt=lambda: credential.jwt,
        sign=credential.sign,
        name="test",
    )
    try:
        yield NatsAdmin(bus)
    finally:
        await bus.close()


def chronicles(room: PostRoom) -> dict[str, Chronicle]:
    """Everything that is in TASKS, by task."""
    return asyncio.run(_read(room))


async def _read(room: PostRoom) -> dict[str, Chronicle]:
    found: dict[str, Chronicle] = {}
    async with log_of(room) as admin:
        async for message in admin.replay("TASKS"):
            said = parse_task_subject(message.subject)
            assert said is not None, message.subject
            worker, task, state = said
            chronicle = found.setdefault(task, Chronicle(worker, task))
            before = chronicle.records[-1][1].task if chronicle.records else None
            record = Link.decode(message.payload).after(before)
            chronicle.records.append((message, record, state))
    return found


def assert_all_ended(room: PostRoom) -> dict[str, Chronicle]:
    """Every task that the post room knows has one end in the log, and the post room says the same of it."""
    with room.client() as client:
        tasks = client.tasks(limit=500)
    found = chronicles(room)
    faults = [fault for chronicle in found.values() for fault in chronicle.faults()]
    for task in tasks:
        chronicle = found.get(task["id"])
        if chronicle is None or not task["final"]:
            faults.append(f"task {task['id']} ({task['text']}) is {task['state']}")
        elif chronicle.records[-1][0].sequence != task["seq"]:
            faults.append(f"task {task['id']} is shown as of record {task['seq']}")
    assert faults == [], json.dumps(faults, indent=1)
    return found
