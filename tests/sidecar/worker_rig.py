"""A real sidecar process over a real bus, with a program of the test's own as its agent."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
import textwrap
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from postroom.bus.nats import NatsBus
from postroom.bus.port import Message
from postroom.errors import UnknownRecipient, problem
from postroom.identity.jwt import Credential
from postroom.protocol import priority, subjects
from postroom.protocol.envelope import Envelope, TaskRequest
from postroom.protocol.ids import CONTROL_PLANE
from postroom.protocol.presence import Presence, WorkerState
from postroom.protocol.priority import PriorityRecord, Requested, Update
from postroom.protocol.receipts import Receipt
from postroom.protocol.streams import AGENT_CONSUMER_STREAMS, agent_consumer
from postroom.protocol.tasks import task_id
from postroom.tasks.engine import Ask
from postroom.tasks.records import TaskRecord
from postroom_a2a.messages import ROLE_USER, text_message, text_of
from postroom_a2a.task_state import TaskState
from tests.prefork import Forked, prefork
from tests.rig import Rig, new_uid, running_bus
from tests.sidecar.control_stub import ControlStub, task_answer
from tests.tasks.enginedesk import Log

PROJECT = "main"
PATIENCE = 20.0
"""Seconds that a test waits for what it expects, before it fails."""


@dataclass
class Tap:
    """Everything that was published, in the order of its arrival."""

    messages: list[Message] = field(default_factory=list)
    _arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, message: Message) -> None:
        async with self._arrived:
            self.messages.append(message)
            self._arrived.notify_all()

    async def until(self, happened: Callable[[], Any], timeout: float = PATIENCE) -> Any:
        """Wait until `happened()` is true, looked at after each message."""
        async with asyncio.timeout(timeout), self._arrived:
            while not (found := happened()):
                await self._arrived.wait()
            return found

    def of(self, kind: str) -> list[Message]:
        """Messages whose subject is of that kind."""
        return [m for m in self.messages if subjects.parse(m.subject).kind == kind]


@dataclass(eq=False)
class Silence:
    """An address, or a request, about which the control plane says nothing until the test lets it."""

    asked: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class WorkerRig:
    """A bus with one worker, an agent `alice` who writes to it, and a tap on everything."""

    bus: Rig
    tap: Tap
    alice: NatsBus
    worker: str
    folder: Path
    credential: Credential
    secret: str = field(default_factory=lambda: secrets.token_hex(32))
    nicks: dict[str, str] = field(default_factory=dict)
    renewals: list[float] = field(default_factory=list)
    finds: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    chosen: list[tuple[str, str]] = field(default_factory=list)
    silent: dict[str, Silence] = field(default_factory=dict)
    control: ControlStub = field(default_factory=ControlStub)
    ledger: Log = field(init=False)
    """What the control plane knows of tasks: those of the worker, and of alice when the worker asks her."""

    def __post_init__(self) -> None:
        self.ledger = Log(self.bus, self.worker)
        self.control.workers.append(self)

    async def neighbour(self, nick: str) -> WorkerRig:
        """Another worker on the same bus."""
        worker = await _moved_in(self.bus)
        home = self.folder.parent / nick
        home.mkdir()
        credential = self.bus.credential(worker, (PROJECT,))
        self.nicks[nick] = worker
        nicks, control = self.nicks, self.control
        return WorkerRig(
            self.bus, self.tap, self.alice, worker, home, credential, nicks=nicks, control=control
        )

    # ── tasks ───────────────────────────────────────────────────────────────────────────────────────

    async def request(self, text: str, *, skill: str = "", message_id: str = "") -> str:
        """A request of alice's to the worker; returns the task's id."""
        new = message_id or secrets.token_hex(16)
        message = text_message(new, text, role=ROLE_USER)
        task = task_id(self.worker, self.alice.uid, new)
        self.ledger.asks[task] = Ask(new, self.alice.uid, message, skill)
        envelope = Envelope(
            id=new,
            to=self.worker,
            message=message,
            sent_at=time.time(),
            expects_reply=True,
            request=TaskRequest(skill),
        )
        subject = subjects.inbox(self.worker, self.alice.uid)
        await self.alice.publish(subject, envelope.encode(), id=new)
        return task

    def own_requests(self) -> list[str]:
        """Tasks that the worker asked of itself; known to the ledger from then on."""
        found = []
        for envelope in self._envelopes("inbox", self._is_own):
            if envelope.request is not None and envelope.to == self.worker:
                task = task_id(self.worker, self.worker, envelope.id)
                self.ledger.asks[task] = Ask(envelope.id, self.worker, envelope.message)
                found.append(task)
        return found

    async def overtake(self, record: PriorityRecord) -> None:
        """Something of alice's for the worker that overtakes its inbox; the control plane stores it."""
        subject = subjects.priority(self.worker, self.alice.uid)
        await self.bus.core.publish(subject, priority.encode(record))

    async def news(self, update: Update | Requested) -> None:
        """News of a task from the control plane."""
        subject = subjects.priority(self.worker, CONTROL_PLANE)
        await self.bus.core.publish(subject, priority.encode(update))

    async def requested(self, task: str) -> None:
        """The control plane says that a request lies behind messages."""
        await self.news(Requested(task))

    async def task(self, task: str, state: TaskState) -> TaskRecord:
        """Wait until a task of the worker's is in that state."""
        return await self.ledger.until(task, state)

    # ── what happened ───────────────────────────────────────────────────────────────────────────────

    def receipts(self, message_id: str = "") -> list[str]:
        """States that the worker reported, in order."""
        found = [Receipt.decode(m.payload) for m in self.tap.of("receipts")]
        return [r.state.value for r in found if message_id in ("", r.message_id)]

    def to_alice(self) -> list[Envelope]:
        """What the worker sent to alice; each id once, as the log has it."""
        return self._envelopes("inbox", self._is_own)

    def posts(self) -> list[str]:
        """Texts that the worker posted."""
        return [text_of(e.message) for e in self._envelopes("feed", self._is_own)]

    def _is_own(self, message: Message) -> bool:
        return subjects.parse(message.subject).sender == self.worker

    def _envelopes(self, kind: str, wanted: Callable[[Message], bool]) -> list[Envelope]:
        found = {}
        for message in self.tap.of(kind):
            if wanted(message):
                envelope = Envelope.decode(message.payload)
                found.setdefault(envelope.id, envelope)
        return list(found.values())

    def states(self) -> list[WorkerState]:
        """States that the worker reported of itself."""
        return [Presence.decode(m.payload).state for m in self.tap.of("status")]

    def presences(self) -> list[Presence]:
        """All presence records."""
        return [Presence.decode(m.payload) for m in self.tap.of("status")]

    def fifo(self, name: str) -> Path:
        """A named pipe in the workspace, for an agent that waits for a word of the test's."""
        path = self.folder / name
        os.mkfifo(path)
        return path

    def presence(self) -> Presence:
        """The last presence record."""
        return Presence.decode(self.tap.of("status")[-1].payload)

    def alerts(self) -> list[str]:
        """Kinds of the alerts that were raised."""
        return [json.loads(m.payload)["kind"] for m in self.tap.of("alerts")]

    async def state(self, state: WorkerState) -> None:
        """Wait until the worker has reported this state."""
        await self.tap.until(lambda: state in self.states())

    def stays(self, message_id: str) -> list[str]:
        """Why a message stays delivered, each time that its sender was told."""
        found = [Receipt.decode(m.payload) for m in self.tap.of("receipts")]
        return [r.reason for r in found if r.message_id == message_id and r.reason]

    async def seen(self, *message_ids: str) -> None:
        """Wait until the worker has reported these as seen, or has answered them."""

        def all_seen() -> bool:
            answered = {envelope.reply_to for envelope in self.to_alice()}
            return all(i in answered or "seen" in self.receipts(i) for i in message_ids)

        await self.tap.until(all_seen)

    # ── what the test does ──────────────────────────────────────────────────────────────────────────

    async def write(self, text: str, *, payload: bytes = b"", **fields: Any) -> str:
        """A message of alice's to the worker; returns its id."""
        message_id = fields.pop("id", secrets.token_hex(16))
        envelope = Envelope(
            id=message_id,
            to=self.worker,
            message=text_message(message_id, text),
            sent_at=time.time(),
            **fields,
        )
        await self.alice.publish(
            subjects.inbox(self.worker, self.alice.uid), payload or envelope.encode(), id=message_id
        )
        return message_id

    def alice_envelope(self, text: str, *, to: str) -> bytes:
        """A payload of alice's that names `to`, whatever subject it is sent to."""
        new = secrets.token_hex(16)
        return Envelope(new, to, text_message(new, text), time.time()).encode()

    async def alice_posts(self, text: str) -> None:
        """A post of alice's to the project's feed."""
        payload = self.alice_envelope(text, to=f"#{PROJECT}")
        await self.alice.publish(subjects.feed(PROJECT, self.alice.uid), payload)

    async def all_acked(self) -> None:
        """Wait until the log holds nothing more for the worker. The acknowledgement itself is no message."""
        await self.pending("INBOX", (0, 0))

    async def pending(self, stream: str, wanted: tuple[int, int]) -> None:
        """Wait until so many records for the worker are not delivered, and delivered and not acknowledged.

        nats-server counts a record for its consumers after it has acknowledged the publish.
        """
        async with asyncio.timeout(PATIENCE):
            while await self.bus.admin.pending(stream, self.worker) != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def config(self, program: str, /, **changes: Any) -> dict[str, Any]:
        """The sidecar's configuration with a Python program as its agent."""
        path = self.folder / "agent.py"
        path.write_text(PRELUDE + textwrap.dedent(program))
        state = self.folder / "state"
        state.mkdir(exist_ok=True)
        record: dict[str, Any] = {
            "uid": self.worker,
            "nick": "reader",
            "org": "default",
            "project": PROJECT,
            "projects": [PROJECT],
            "jwt": self.credential.jwt,
            "seed": self.credential.seed,
            "token": "t0ken",
            "message_secret": self.secret,
            "nats_url": self.bus.url,
            "state": str(state),
            "workspace": str(self.folder),
            "owner": self.alice.uid,
            "stop_grace": 1.0,
        }
        adapter = changes.pop("agent", {})
        record["agent"] = {"command": [sys.executable, "-u", str(path)], **adapter}
        return record | changes

    async def start(self, config: dict[str, Any]) -> Forked:
        """Start the sidecar; whoever starts it ends it."""
        return prefork().sidecar(self._environment(config), self.folder / "log")

    async def start_alone(self, config: dict[str, Any]) -> asyncio.subprocess.Process:
        """Start the sidecar as a sandbox does, with nothing in its memory that it does not import itself."""
        with (self.folder / "log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "postroom.sidecar"),
                env=self._environment(config),
                stdout=log,
                stderr=log,
            )

    def _environment(self, config: dict[str, Any]) -> dict[str, str]:
        path = self.folder / "sidecar.json"
        path.write_text(json.dumps(config))
        return {
            "PATH": os.environ["PATH"],
            "POSTROOM_SIDECAR_CONFIG": str(path),
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }

    @asynccontextmanager
    async def sidecar(self, program: str, /, **changes: Any) -> AsyncGenerator[Forked]:
        """A running sidecar, stopped at the end."""
        process = await self.start(self.config(program, **changes))
        try:
            yield process
        except BaseException:
            sys.stderr.write(self.log())
            raise
        finally:
            await end(process)

    def log(self) -> str:
        """What the sidecar logged."""
        return (self.folder / "log").read_text()


PRELUDE = """
import json, os, signal, sys, time

def lines():
    for line in sys.stdin:
        yield json.loads(line)

def messages():
    for line in lines():
        if line["type"] == "message":
            yield line

def say(**record):
    sys.stdout.write(json.dumps(record) + "\\n")
    sys.stdout.flush()

"""

ECHO = """
for message in messages():
    say(type="reply", to=message["id"], text="echo " + message["text"])
"""


async def end(process: Forked | asyncio.subprocess.Process) -> int:
    """SIGTERM, and SIGKILL if it does not heed it; returns the exit code."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(PATIENCE):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
    return process.returncode or 0


LISTED = {
    "uid": "c" * 32,
    "nick": "carol",
    "kind": "worker",
    "org": "default",
    "online": True,
    "card": {"name": "carol", "description": "Writes\x1b[2J.", "skills": [{"id": "write"}]},
}
"""What the control plane finds, whatever it is asked for."""


async def _moved_in(rig: Rig) -> str:
    worker = new_uid()
    for stream in AGENT_CONSUMER_STREAMS:
        await rig.admin.ensure_consumer(agent_consumer(stream, worker, (PROJECT,)))
    return worker


@asynccontextmanager
async def worker_rig(folder: Path, *, memory: bool = True) -> AsyncGenerator[WorkerRig]:
    """A bus of its own with one worker: for a test that stops the server, or reads a whole stream."""
    async with (
        running_bus(folder / "bus", memory=memory) as rig,
        worker_rig_on(rig, folder) as found,
    ):
        yield found


@asynccontextmanager
async def worker_rig_on(rig: Rig, folder: Path) -> AsyncGenerator[WorkerRig]:
    """A new worker on a bus, a new alice, the control plane's answers, a tap."""
    async with AsyncExitStack() as stack:
        worker = await _moved_in(rig)
        tap = Tap()
        for subject in ("worker.>", "project.>", "system.alerts.>"):
            subscription = await rig.core.subscribe(subject, tap.take)
            stack.push_async_callback(subscription.close)
        home = folder / "worker"
        home.mkdir()
        credential = rig.credential(worker, (PROJECT,))
        alice = await rig.agent(projects=(PROJECT,))
        stack.push_async_callback(alice.close)
        found = WorkerRig(rig, tap, alice, worker, home, credential)
        found.nicks = {"alice": found.alice.uid, "reader": worker}
        telling = await rig.core.subscribe("worker.*.tasks.>", found.control.tell)
        stack.push_async_callback(telling.close)
        serving = await rig.core.serve("ctl.*.>", _answers(found))
        stack.push_async_callback(serving.close)
        yield found


def _answers(found: WorkerRig):
    async def answer(message: Message) -> bytes:
        said = subjects.parse(message.subject)
        if (silence := found.silent.get(" ".join(said.rest))) is not None:
            silence.asked.set()
            await silence.over.wait()
        if said.rest == ("credential", "renew"):
            found.renewals.append(time.time())
            record = {"jwt": found.credential.jwt, "expires_at": time.time() + 3600}
            return json.dumps(record).encode()
        if said.rest == ("cards", "find"):
            found.finds.append(json.loads(message.payload))
            return json.dumps({"agents": [LISTED], "truncated": False}).encode()
        if said.rest == ("messages", "thread"):
            asked = json.loads(message.payload)
            mail = {"id": "m1", "from": {"nick": "alice"}, "text": f"in {asked['thread']}"}
            return json.dumps({"messages": [mail]}).encode()
        found.asked.append(said.rest)
        if said.rest[0] == "tasks":
            found_rig = found.control.of(said.sender) or found
            return await task_answer(
                found_rig, said.sender, said.rest[1], json.loads(message.payload)
            )
        ref = str(json.loads(message.payload).get("ref", ""))
        if (silence := found.silent.get(ref)) is not None:
            silence.asked.set()
            await silence.over.wait()
        if said.rest == ("cards", "get"):
            return json.dumps({"card": LISTED["card"]}).encode()
        for nick, uid in found.nicks.items():
            if ref in (f"@{nick}", uid):
                record = {"uid": uid, "nick": nick, "kind": "worker", "org": "default"}
                return json.dumps(record).encode()
        unknown = UnknownRecipient(f"no agent {ref}", remedy="postroom agents lists all")
        return json.dumps({"error": problem(unknown)}).encode()

    return answer


def handed(home: WorkerRig) -> list[str]:
    """What the agent noted in its folder that it was handed, and whether as redelivered."""
    file = home.folder / "handed"
    return file.read_text().splitlines() if file.exists() else []


async def until(happened: Callable[[], bool]) -> None:
    """Wait for what the agent does in its folder, which tells nobody."""
    async with asyncio.timeout(PATIENCE):
        while not happened():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
