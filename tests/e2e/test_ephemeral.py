"""Workers in their sandboxes ask each other by A2A, with `postroom-agent call`, while processes are killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import PostRoom, until
from tests.e2e.processes import sidecar_of
from tests.e2e.test_task_crashes import kill, pid_of, restart

# Carries out what lies in the workspace as `<name>.call`; the output goes to `<name>.out`, line by line.
CALLER = """
import json, pathlib, subprocess, sys, threading

def watch():
    while True:
        for found in pathlib.Path(".").glob("*.call"):
            words = json.loads(found.read_text())
            found.unlink()
            with open(found.stem + ".out", "w") as out, open(found.stem + ".err", "w") as err:
                code = subprocess.run(["postroom-agent", "call", *words], stdout=out, stderr=err)
            pathlib.Path(found.stem + ".code").write_text(str(code.returncode))
        threading.Event().wait(0.02)

threading.Thread(target=watch, daemon=True).start()
for line in sys.stdin:
    if json.loads(line)["type"] == "stop":
        break
"""

# Says what stands in the files step-1, step-2, ... of the workspace, as soon as they are there.
WORKER = """
import json, pathlib, sys, threading

def say(**line):
    print(json.dumps(line), flush=True)

def work(task):
    number = 1
    while True:
        step = pathlib.Path(f"step-{number}")
        while not step.exists():
            threading.Event().wait(0.01)
        line = json.loads(step.read_text())
        say(task=task, **line)
        number += 1
        if line["type"] == "complete":
            return

for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] == "task":
        threading.Thread(target=work, args=(line["id"],), daemon=True).start()
    if line["type"] == "stop":
        break
"""

TEMPLATE = """
[worker]
name = "{name}"
[workstation]
command = ["python3", "/opt/agent/{name}.py"]
files = ["{name}.py"]
"""


class Desk:
    """A worker of the test's, and its workspace."""

    def __init__(self, room: PostRoom, nick: str, program: str) -> None:
        text = TEMPLATE.format(name=nick)
        room.run("spawn", room.template(text, nick, **{nick: program}))
        with room.client() as client:
            self.uid = client.worker(nick)["uid"]
        self.folder: Path = room.state / "workers" / self.uid / "workspace"
        self.steps = 0

    def put(self, name: str, value: Any) -> None:
        """A file that its agent finds whole."""
        (self.folder / f"{name}~").write_text(json.dumps(value))
        (self.folder / f"{name}~").rename(self.folder / name)

    def step(self, **line: Any) -> None:
        """What its agent says next of the task."""
        self.steps += 1
        self.put(f"step-{self.steps}", line)

    def lines(self, name: str) -> list[str]:
        """What a call has printed so far, each line in a word or two."""
        path = self.folder / f"{name}.out"
        text = path.read_text() if path.exists() else ""
        return [shown(json.loads(line)) for line in text.splitlines(keepends=True) if "\n" in line]

    def call(self, name: str, *words: str) -> tuple[int, str]:
        """Exit code and error of a call."""
        self.put(f"{name}.call", words)
        return self.ended(name)

    def ended(self, name: str) -> tuple[int, str]:
        code = self.folder / f"{name}.code"
        until(lambda: code.exists() and code.read_text())
        return int(code.read_text()), (self.folder / f"{name}.err").read_text().strip()


def shown(event: dict[str, Any]) -> str:
    match event:
        case {"task": {"status": status}} | {"statusUpdate": {"status": status}}:
            said = "".join(part["text"] for part in status.get("message", {}).get("parts", ()))
            first = "task " if "task" in event else ""
            return f"{first}{status['state'].removeprefix('TASK_STATE_')} {said}".strip()
        case {"artifactUpdate": {"artifact": artifact}}:
            return f"artifact {artifact['parts'][0]['text']}"
    return json.dumps(event)


def message(text: str) -> str:
    parts = [{"text": text}]
    return json.dumps({"message": {"messageId": text, "role": "ROLE_USER", "parts": parts}})


@pytest.mark.requirement("client-stream-resumes")
def test_a_worker_streams_anothers_task_also_across_a_kill_and_a_third_sees_nothing(
    room: PostRoom,
) -> None:
    room.up()
    caller, worker = Desk(room, "caller", CALLER), Desk(room, "helper", WORKER)
    third = Desk(room, "third", CALLER)

    caller.put("a.call", ["helper", "SendMessage", message("one"), "--stream"])
    until(lambda: caller.lines("a")[-1:] == ["WORKING"])
    worker.step(type="update", text="half")
    until(lambda: caller.lines("a")[-1:] == ["WORKING half"])
    with room.client() as client:
        (task,) = [each["id"] for each in client.tasks()]
    for number, method in enumerate(("GetTask", "SubscribeToTask", "CancelTask")):
        code, error = third.call(str(number), "helper", method, json.dumps({"id": task}))
        assert (code, error) == (4, "postroom-agent: there is no such task")

    sidecar = sidecar_of(pid_of(room, "helper"))
    kill(sidecar.pid if sidecar else None)
    code, error = third.call("n", "@helper", "GetTask", json.dumps({"id": "0" * 32}))
    assert (code, error) == (8, "postroom-agent: nobody serves helper at the moment")
    restart(room, "helper")
    until(lambda: "WORKING half" in caller.lines("a")[4:])
    worker.step(type="artifact", text="42")
    worker.step(type="complete", text="done")
    assert caller.ended("a") == (0, "")
    assert caller.lines("a") == [
        "task SUBMITTED",
        "WORKING",
        "WORKING half",
        "WORKING begun again: its worker ended",
        "WORKING half",
        "artifact 42",
        "COMPLETED done",
    ]
    assert caller.call("b", "helper", "GetTask", json.dumps({"id": task})) == (0, "")
