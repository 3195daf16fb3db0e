"""A post room as an A2A client has it: real processes, and workers that do what a task's text says."""

from __future__ import annotations

import os
import secrets
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import httpx2

from library.faults.http import PATIENCE, Caller
from tests.e2e.conftest import PostRoom, gone, until
from tests.e2e.processes import agent_of, sidecar_of
from tests.e2e.taskwork import Station, station

# Each task is "<kind> <name>", and `notes` in the workspace holds what was done of it.
#   work      is done at once
#   ask       asks, and is done with the answer
#   hold      is done when the file go-<name> is there; a cancel stops it
#   stubborn  the same, but hears no cancel: an artifact, and its end right behind it
#   steps     adds pieces to an artifact until go-<name> is there, or it is canceled
#   some      adds four pieces with a breath between two, and is done
AGENT = """
import json, os, pathlib, queue, sys, threading, time

canceled = set()
lines = queue.Queue()

def say(**line):
    sys.stdout.write(json.dumps(line) + "\\n")
    sys.stdout.flush()

def note(text):
    with open("notes", "a") as file:
        file.write(text + "\\n")

def read():
    for raw in sys.stdin:
        line = json.loads(raw)
        if line["type"] == "stop":
            os._exit(0)
        if line["type"] == "cancel":
            note("cancel")
            canceled.add(line["task"])
        lines.put(line)
    os._exit(0)

def goes(name):
    return pathlib.Path("go-" + name).exists()

def piece(task, text, first):
    say(type="artifact", task=task, id="a", text=text, append=not first, last=False)

def end(task, name, text=""):
    if task in canceled:
        note("stopped " + name)
        say(type="canceled", task=task)
    else:
        note("did " + name)
        say(type="complete", task=task, text=text or name)

threading.Thread(target=read, daemon=True).start()
while True:
    line = lines.get()
    if line["type"] == "input":
        end(line["task"], line["text"], line["text"])
    if line["type"] != "task":
        continue
    task, (kind, name) = line["id"], line["text"].split()
    note("begins " + name)
    if kind == "ask" and len(line.get("history", ())) < 3:
        say(type="ask", task=task, text="which?")
        continue
    if kind == "hold":
        note("holds " + name)
        while not goes(name) and task not in canceled:
            time.sleep(0.01)
    elif kind == "stubborn":
        note("holds " + name)
        while not goes(name):
            time.sleep(0.01)
        say(type="artifact", task=task, id="last", text=name)
        note("did " + name)
        say(type="complete", task=task, text=name)
        continue
    elif kind == "steps":
        number = 0
        while not goes(name) and task not in canceled:
            piece(task, str(number), number == 0)
            number += 1
            time.sleep(0.002)
    elif kind == "some":
        for number in range(4):
            piece(task, str(number), number == 0)
            time.sleep(0.05)
    end(task, name)
"""


@dataclass
class Door:
    """The A2A address of one worker of a post room."""

    room: PostRoom
    worker: Station

    @asynccontextmanager
    async def callers(self, count: int) -> AsyncGenerator[list[Caller]]:
        """Callers on connections of their own, with the operator's key."""
        server = self.room.server
        headers = {"Authorization": f"Bearer {server['token']}"}
        https = [httpx2.AsyncClient(headers=headers, timeout=PATIENCE) for _ in range(count)]
        try:
            yield [Caller(http, f"{server['url']}/a2a/{self.worker.nick}") for http in https]
        finally:
            for http in https:
                await http.aclose()

    def notes(self, name: str) -> list[str]:
        """What the agents have written down about a name."""
        return [note.split()[0] for note in self.worker.notes if note.split()[1:] == [name]]

    def noted(self, name: str, word: str, count: int = 1) -> None:
        until(lambda: self.notes(name).count(word) >= count)

    def pid(self) -> int:
        with self.room.client() as client:
            pid = client.worker(self.worker.nick)["pid"]
        assert pid
        return pid

    def kill_control(self) -> None:
        """SIGKILL the control plane; it is up again on return, and so is the worker."""
        server = self.room.server
        os.kill(server["pid"], signal.SIGKILL)
        until(lambda: gone(server["pid"]) and gone(server["nats_pid"]))
        self.room.up()

    def kill_server(self) -> None:
        """SIGKILL nats-server; the control plane starts it again. It may have died a moment ago."""
        with suppress(ProcessLookupError):
            os.kill(self.room.server["nats_pid"], signal.SIGKILL)

    def kill_sidecar(self) -> None:
        """SIGKILL the worker's sidecar; it runs again on return."""
        sidecar = sidecar_of(self.pid())
        if sidecar is not None:
            sidecar.kill()
            until(lambda: gone(sidecar.pid))
        with self.room.client() as client:
            client.restart(self.worker.nick)

    def kill_agent(self) -> None:
        """SIGKILL the agent program; its sidecar starts it again."""
        agent = agent_of(self.pid())
        if agent is not None:
            agent.kill()


def door(room: PostRoom, restarts: int = 1000) -> Door:
    """A new worker that runs `AGENT`."""
    nick = f"desk{secrets.token_hex(3)}"
    return Door(room, station(room, nick, restarts, AGENT))
