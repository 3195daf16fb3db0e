"""A control plane in a process of its own, with a door for workers that a benchmark or a test plays.

    python -m benchmarks.eventplane STATE NATS_URL PORT DOOR_PORT WORKERS

Everything is the post room's own, but no worker runs and no gateway stands before the doors: a request on the second
port counts as that of the worker in its path, and has to bring that worker's token. It prints a line of JSON when it is
ready, and ends with its standard input. It can be killed and started again on the same state and ports.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from postroom.bus.address import BusAddress
from postroom.control.app import open_installation
from postroom.control.endpoints import plan
from postroom.control.http_listener import HttpListener, bind
from postroom.control.org import Organisation
from postroom.control.org_router import WORKER, OrgRouter, Receive, Scope, Send
from postroom.control.statefile import Announcement
from postroom.identity.tokens import OperatorKey, digest
from postroom.identity.trust import Trust
from postroom.sandbox.port import ExitStatus, Level
from postroom.settings import DEFAULT_ORG, Settings
from postroom.store.agents import Agent
from postroom.store.database import Store
from postroom.store.workers import STOPPED, WorkerRecord
from postroom.workers.runs import Run
from postroom_a2a.nats.connection import WireConnection

KEY = "operator-key"
TEMPLATE = '[worker]\nname = "x"\n[workstation]\ncommand = ["true"]\n[sidecar]\n'


def token_of(uid: str) -> str:
    """The token of the worker with that uid."""
    return f"token-{uid}"


class GivenServer:
    """`BusHost` of a server that runs already."""

    version, replicas, pid = "2", 1, 0
    doubts: tuple[str, ...] = ()

    def __init__(self, url: str) -> None:
        self.address = BusAddress((url,))

    async def check(self, system: WireConnection) -> None:
        """Nothing: it is ours."""

    async def trust_proxies(self, proxies: Sequence[str]) -> bool:
        """Not asked for."""
        raise NotImplementedError

    async def trust_operator(
        self, operator_jwt: str, signers: Sequence[str], accounts: Mapping[str, str]
    ) -> bool:
        """Not asked for."""
        raise NotImplementedError

    async def run(self) -> None:
        """Nothing: somebody else keeps it up."""

    async def stop(self) -> None:
        """Nothing: somebody else ends it."""


class NoSandbox:
    """A `SandboxHandle` without a process."""

    pid = 0
    level = Level.NONE
    unenforced: tuple[str, ...] = ()

    async def wait(self) -> ExitStatus:
        """Never."""
        await asyncio.Event().wait()
        return ExitStatus(0)

    async def stop(self, grace: float) -> ExitStatus:  # noqa: ARG002 (the port has it)
        """At once."""
        return ExitStatus(0)

    def kill(self) -> None:
        """Nothing runs."""


async def serve(state: Path, url: str, port: int, door_port: int, workers: int) -> None:
    """Run until standard input ends."""
    settings = Settings(state=state)
    trust = Trust.load_or_create(state / "keys")
    hosts = frozenset({f"127.0.0.1:{port}", f"127.0.0.1:{door_port}"})
    router = OrgRouter(hosts)

    async def door(scope: Scope, receive: Receive, send: Send) -> None:
        scope[WORKER] = scope["path"].split("/")[3]
        await router(scope, receive, send)

    listeners = [
        HttpListener(router, bind("127.0.0.1", port, usual=port)),
        HttpListener(door, bind("127.0.0.1", door_port, usual=door_port)),
    ]
    announcement = Announcement(
        url="", pid=1, token="", nats_url="", nats_pid=1, started_at="", version="", state=""
    )
    async with AsyncExitStack() as stack:
        installation = await open_installation(
            settings,
            GivenServer(url),
            router,
            trust,
            lambda: None,
            stack,
            endpoints=plan(settings),
            certificate=None,
        )
        org = await Organisation.open(
            installation, settings, trust, stack, key=OperatorKey(Path(), KEY)
        )
        await org.go(lambda: announcement)
        uids = await _workers(org, workers)
        for uid in uids:
            router.admit(uid, DEFAULT_ORG)
        async with asyncio.TaskGroup() as tasks:
            for listener in listeners:
                tasks.create_task(listener.serve())
            print(json.dumps({"workers": uids}), flush=True)
            await asyncio.to_thread(sys.stdin.read)
            for listener in listeners:
                listener.stop()


async def _workers(org: Organisation, count: int) -> list[str]:
    known = {agent.nick: agent for agent, _ in await org.parts.workers.records()}
    nicks = [f"w{number}" for number in range(count)]
    for nick in nicks:
        if nick not in known:
            known[nick] = await org.parts.directory.register(nick, "worker", also=_add)
        # As the start of a worker notes it: otherwise each report would read the template.
        run = Run(NoSandbox(), "none", time.time(), nick, {}, nick, True)
        org.parts.workers._runs.begin(known[nick], run)  # noqa: SLF001 (no worker is started)
    return [known[nick].uid for nick in nicks]


def _add(store: Store, agent: Agent) -> None:
    token = digest(token_of(agent.uid))
    record = WorkerRecord(agent.uid, "main", TEMPLATE, "none", "", STOPPED, token, time.time())
    store.workers.add_worker(record)


def main(words: Sequence[str]) -> None:
    """Serve as the command line says."""
    state, url, port, door_port, workers = words
    asyncio.run(serve(Path(state), url, int(port), int(door_port), int(workers)))


if __name__ == "__main__":
    main(sys.argv[1:])
