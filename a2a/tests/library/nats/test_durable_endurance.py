"""Servers, clients and nats-server are killed, stopped and cut off at random; afterwards every record is read.

POSTROOM_SEED=N chooses what is asked for and what is done to whom; a failed run prints its own.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from a2a import types
from library.nats import taskclient, taskworker
from library.nats.cuts import Way
from library.nats.durableagent import Desk, open_desk
from library.nats.workers import Worker, start
from postroom_a2a.errors import NotFound
from postroom_a2a.nats.jetstream import JetStream
from postroom_a2a.nats.kv import Bucket

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]

REPLICAS = 2
CLIENTS = 2
CALLS = 300
ACK_WAIT = 1.0
DURABLE = "a2a_agent_desk_requests_server"
STRIKES = ("kill", "kill", "stop", "restart", "cut", "delete", "bus", "client")


@pytest.fixture
def seed() -> int:
    """Chooses everything that is left to chance."""
    return int(os.environ.get("POSTROOM_SEED") or random.SystemRandom().randrange(10**6))


@dataclass
class Stage:
    """The processes of one run, and what is done to them."""

    desk: Desk
    way: Way
    folder: Path
    rng: random.Random
    servers: list[Worker] = field(default_factory=list)
    clients: list[Worker] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)

    async def serve(self) -> Worker:
        journal = self.folder / "servers"
        return await start(taskworker, self.way.url, journal, ACK_WAIT)

    async def ask(self) -> Worker:
        self.names.append(f"s{self.rng.randrange(10**6)}c{len(self.names)}")
        journal = self.folder / "clients"
        return await start(taskclient, self.way.url, journal, self.names[-1], CALLS)

    async def strike(self, kinds: tuple[str, ...]) -> None:
        """Do something to somebody."""
        kind = self.rng.choice(kinds)
        self.struck[kind] += 1
        at = self.rng.randrange(REPLICAS)
        match kind:
            case "kill":
                await self.servers[at].kill()
                self.servers[at] = await self.serve()
            case "stop":
                process = self.servers[at].process
                process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(ACK_WAIT * self.rng.uniform(1.5, 4))
                process.send_signal(signal.SIGCONT)
            case "restart":
                assert await self.servers[at].end() == 0
                self.servers[at] = await self.serve()
            case "cut":
                self.way.cut()
            case "delete":
                await self._delete_consumer()
            case "bus":
                await self.desk.server.restart(kill=self.rng.random() < 0.7)
            case "client":
                await self.clients[at].kill()
                self.clients[at] = await self.ask()

    async def _delete_consumer(self) -> None:
        js = await self.desk.jetstream()
        stream = self.rng.choice(("A2A_REQUESTS", "A2A_RESPONSES"))
        names = (await js.api(f"CONSUMER.NAMES.{stream}", {"offset": 0})).get("consumers") or []
        if names:
            with suppress(NotFound):
                await js.api(f"CONSUMER.DELETE.{stream}.{self.rng.choice(names)}")

    async def settle(self) -> None:
        """Until all clients have ended, and nothing is left to be done."""
        for client in self.clients:
            assert await client.process.wait() == 0
        js = await self.desk.jetstream()
        async with asyncio.timeout(60):
            for durable in (DURABLE, f"{DURABLE}_control"):
                while True:
                    info = await js.api(f"CONSUMER.INFO.A2A_REQUESTS.{durable}")
                    if not info["num_ack_pending"] and not info["num_pending"]:
                        break
                    await asyncio.sleep(0.1)
        for server in self.servers:
            assert await server.end() == 0

    async def close(self) -> None:
        for worker in (*self.servers, *self.clients):
            await worker.kill()


@dataclass
class Evidence:
    """What can be read afterwards."""

    begun: list[str]
    said: list[dict[str, Any]]
    requests: dict[str, str]
    """Keys of the stored requests that begin work, by the ids of the calls."""
    ends: Counter[str]
    """Terminal frames by call."""
    tasks: list[types.Task]

    @classmethod
    async def read(cls, stage: Stage) -> Evidence:
        js = await stage.desk.jetstream()
        lines = (stage.folder / "servers").read_text().splitlines()
        said = (stage.folder / "clients").read_text().splitlines()
        requests: dict[str, str] = {}
        streamed: set[str] = set()
        for frame in await _messages(js, "A2A_REQUESTS"):
            request = frame["request"]
            if request["method"].startswith("Send"):
                requests[request["id"]] = request["params"]["message"]["messageId"]
            if request["method"] == "SendStreamingMessage":
                streamed.add(request["id"])
        ends: Counter[str] = Counter()
        for frame in await _messages(js, "A2A_RESPONSES"):
            if frame["kind"] == "complete":
                ends[frame["id"]] += 1
            elif frame["response"]["id"] not in streamed:
                ends[frame["response"]["id"]] += 1
        bucket = await Bucket.open(js, "A2A_TASKS")
        tasks = [
            types.Task.FromString(entry.value)
            for key in await bucket.keys()
            if (entry := await bucket.get(key)) is not None
        ]
        begun = [line.split()[1] for line in lines if line.startswith("begin")]
        return cls(begun, [json.loads(line) for line in said if line], requests, ends, tasks)

    def faults(self) -> Iterator[str]:
        """What is not as it was promised, one sentence each."""
        yield from (f"{k} was begun {n} times" for k, n in Counter(self.begun).items() if n > 1)
        begun = set(self.begun)
        for call_id, key in self.requests.items():
            if (ends := self.ends[call_id]) > 1 or (not ends and key in begun):
                yield f"{key} was answered {ends} times"
        settled = {"COMPLETED", "FAILED", "CANCELED", "INPUT_REQUIRED"}
        for task in self.tasks:
            state = types.TaskState.Name(task.status.state).removeprefix("TASK_STATE_")
            if state not in settled:
                yield f"task {task.id} is {state}"
        sent = {line["key"]: line for line in self.said if line["do"] == "sent"}
        for line in self.said:
            if line["do"] == "looked" and line.get("found") and line["found"] != line["asked"]:
                yield f"another task was found: {line}"
            if line["do"] in {"answer", "error"}:
                yield from _judge(line, sent[line["key"]])


def _judge(line: dict[str, Any], sent: dict[str, Any]) -> Iterator[str]:
    key, results = line["key"], line["results"]
    if line["do"] == "error" and line["error"] not in {"request-timeout", "stream-broken"}:
        yield f"{key}: {line}"
    steps = [
        part["text"]
        for each in results
        if isinstance(each, dict) and "artifactUpdate" in each
        for part in each["artifactUpdate"]["artifact"]["parts"]
    ]
    if steps != [f"{key} {n}" for n in range(len(steps))]:
        yield f"{key}: its stream has {steps}"
    text = json.dumps(results)
    completed = "TASK_STATE_COMPLETED" in text
    kind, number = sent["kind"].split()
    if kind == "step" and completed and "ended while" not in text:
        # Where its server was killed after the end of the task, the last event is the whole task.
        whole = not sent["streamed"] or "task" in results[-1] or len(steps) == int(number)
        if not whole:
            yield f"{key}: {len(steps)} of {number} steps"
    if completed and key not in text:
        yield f"{key}: another's answer: {text}"
    if line["do"] == "answer" and not results:
        yield f"{key}: an answer of nothing"


async def _messages(js: JetStream, stream: str) -> list[dict[str, Any]]:
    """All of a stream, as JSON."""
    found: list[dict[str, Any]] = []
    state = (await js.api(f"STREAM.INFO.{stream}"))["state"]
    for sequence in range(state["first_seq"], state["last_seq"] + 1):
        with suppress(NotFound):
            message = (await js.api(f"STREAM.MSG.GET.{stream}", {"seq": sequence}))["message"]
            found.append(json.loads(base64.b64decode(message["data"])))
    return found


async def _endure(folder: Path, seed: int, kinds: tuple[str, ...]) -> None:
    print(f"POSTROOM_SEED={seed} kinds={kinds}")  # noqa: T201 (shown by pytest when it fails)
    rng = random.Random(seed)
    async with open_desk(folder / "nats") as desk, Way(desk.server.url).open() as way:
        stage = Stage(desk, way, folder, rng)
        try:
            stage.servers = [await stage.serve() for _ in range(REPLICAS)]
            stage.clients = [await stage.ask() for _ in range(CLIENTS)]
            while any(client.process.returncode is None for client in stage.clients):
                await asyncio.sleep(rng.uniform(0.0, 0.8))
                if sum(stage.struck.values()) < 30:
                    await stage.strike(kinds)
            await stage.settle()
            evidence = await Evidence.read(stage)
        finally:
            await stage.close()
    states = Counter(types.TaskState.Name(task.status.state) for task in evidence.tasks)
    errors = Counter(line.get("error", line["do"]) for line in evidence.said)
    print(dict(stage.struck), dict(states), dict(errors))  # noqa: T201
    faults = list(evidence.faults())
    assert not faults, "\n".join(faults)


@pytest.mark.requirement("binding-durable-begun-once")
async def test_whatever_is_killed_every_call_is_begun_once_and_ends_once(tmp_path: Path, seed: int):
    await _endure(tmp_path, seed, STRIKES)
