"""A NATS that somebody else runs, for tests: real nats-servers as one cluster, which trust a post room's keys.

async with running_cluster(tmp_path, trust) as cluster:
    await connect(cluster.urls)
    await cluster.nodes[0].kill()
    await cluster.ready(running=2)
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import postroom_a2a
from postroom.bus.parent_death import die_with_parent
from postroom.bus.server_binary import find_binary
from postroom.errors import RequestTimeout
from postroom.identity.trust import Trust
from postroom_a2a.nats import WireConnection
from postroom_a2a.nats.mailbox import FrameQueue

HOST = "127.0.0.1"

START_TIMEOUT = 20.0
"""Seconds until a server takes connections."""

READY_TIMEOUT = 40.0
"""Seconds until the servers have found each other: an election alone may take nine."""

ASK_AGAIN = 0.3
"""Seconds after which the servers are asked once more how they see each other."""

CHANCES = 20
"""Free ports are looked for so often."""

Change = Callable[[dict[str, Any]], None]


class Node:
    """One server; it keeps its ports and its folder over restarts.

    Attributes:
        name: of the server in its cluster.
        config: what its configuration file says from the next start on; `include` names a further file beside it.
        said: the lines of its log, of every start.
    """

    def __init__(self, folder: Path, name: str, port: int, config: dict[str, Any]) -> None:
        self.name = name
        self.port = port
        self.config = config
        self.said: list[str] = []
        self._file = folder / "nats-server.conf"
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """Address for clients."""
        return f"nats://{HOST}:{self.port}"

    @property
    def running(self) -> bool:
        """Whether it was started, and neither stopped nor killed."""
        return self._process is not None

    async def start(self) -> None:
        """Start it; on return it takes connections."""
        self._file.write_text(_written(self.config), "utf-8")
        self._process = await asyncio.create_subprocess_exec(
            find_binary(),
            "--config",
            self._file,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read(self._process, ready))
        ended = asyncio.create_task(self._process.wait())
        waiting = asyncio.create_task(ready.wait())
        try:
            await asyncio.wait(
                {ended, waiting}, timeout=START_TIMEOUT, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ended.cancel()
            waiting.cancel()
        if not ready.is_set():
            await self.kill()
            raise RuntimeError(f"{self.name} did not start: {self.said[-5:]}")

    async def kill(self) -> None:
        """Kill it, as a crash or a power cut would, and wait until it is gone."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Ask it to end, and wait until it is gone."""
        await self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop it where it is: its connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)
        if self._process is not None:  # none of its threads does anything any more
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def reload(self) -> None:
        """Have it read its configuration again."""
        self._file.write_text(_written(self.config), "utf-8")
        if self._process is not None:
            self._process.send_signal(signal.SIGHUP)

    async def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.send_signal(number)
        await process.wait()
        if self._reading is not None:
            await self._reading

    async def _read(self, process: asyncio.subprocess.Process, ready: asyncio.Event) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            self.said.append(line.decode("utf-8", "replace").rstrip())
            if b"Server is ready" in line:
                ready.set()


class Cluster:
    """The servers, and when they have found each other."""

    def __init__(self, nodes: list[Node], trust: Trust, tls: ssl.SSLContext | None = None) -> None:
        self.nodes = nodes
        self._trust = trust
        self._tls = tls

    @property
    def urls(self) -> tuple[str, ...]:
        """Address of each server."""
        return tuple(node.url for node in self.nodes)

    def node(self, name: str) -> Node:
        """The server that calls itself `name`."""
        return next(node for node in self.nodes if node.name == name)

    async def ready(self, *, running: int = 0) -> str:
        """Wait until the running servers know each other and have a leader for JetStream.

        Args:
            running: so many must run; 0 for all.

        Returns:
            Name of the leader, "" where JetStream is off or there is one server.
        """
        running = running or len(self.nodes)
        async with asyncio.timeout(READY_TIMEOUT), self.system() as system:
            # An elected leader is announced; that servers have met is not, so they are asked again and again. A server
            # that is late answers a question of before: each answer counts, whenever it comes.
            inbox, came = system.new_inbox(), FrameQueue()
            said: dict[str, dict[str, Any]] = {}
            await system.subscribe_now("$JS.EVENT.ADVISORY.DOMAIN.LEADER_ELECTED", came.put)
            await system.subscribe_now(inbox, came.put)
            while True:
                await system.publish("$SYS.REQ.SERVER.PING.JSZ", b"", reply=inbox)
                with suppress(TimeoutError, RequestTimeout):
                    async with asyncio.timeout(ASK_AGAIN):
                        while True:
                            frame = await came.get(ASK_AGAIN)
                            if frame.subject != inbox:
                                break
                            answer = json.loads(frame.data)
                            said[answer["server"]["name"]] = answer
                            leader = _leader(list(said.values()), running)
                            if leader is not None:
                                return leader

    @asynccontextmanager
    async def system(self) -> AsyncGenerator[WireConnection]:
        """A connection of the system account."""
        credential = self._trust.system_credential()
        urls = [node.url for node in self.nodes if node.running]
        async with await postroom_a2a.connect(
            urls,
            tls=self._tls,
            tls_first=any(_tls_first(node.config) for node in self.nodes),
            credentials=credential.for_connection(),
            wait=READY_TIMEOUT,
            on_error=_ignore,
        ) as connection:
            yield connection


async def survey(
    system: WireConnection, what: str, servers: int, request: bytes = b"", *, timeout: float = 0.5
) -> list[dict[str, Any]]:
    """Answers of up to `servers` servers to a request of `what` ("VARZ", "JSZ", "CONNZ" and the like).

    Returns:
        `{"server": {...}, "data": {...}}` each.
    """
    inbox = system.new_inbox()
    answers = []
    came = FrameQueue()
    subscription = await system.subscribe_now(inbox, came.put)
    try:
        await system.publish(f"$SYS.REQ.SERVER.PING.{what}", request, reply=inbox)
        async with asyncio.timeout(timeout):
            while len(answers) < servers:
                answers.append(json.loads((await came.get(timeout)).data))
    except (TimeoutError, RequestTimeout):
        pass
    finally:
        await subscription.unsubscribe()
    return answers


def _leader(answers: list[dict[str, Any]], running: int) -> str | None:
    """Who leads, None while they do not agree."""
    if len(answers) != running:
        return None
    if running == 1 or any(answer["data"].get("disabled") for answer in answers):
        return ""
    groups = {
        answer["server"]["name"]: answer["data"].get("meta_cluster") or {} for answer in answers
    }
    leaders = {group.get("leader") for group in groups.values()}
    if len(leaders) != 1 or None in leaders:
        return None
    leader = leaders.pop()  # a follower lists the others, too, and does not know how far they are
    met = [peer for peer in groups.get(leader, {}).get("replicas", ()) if peer.get("current")]
    return leader if len(met) >= running - 1 else None


@asynccontextmanager
async def running_cluster(
    folder: Path,
    trust: Trust,
    *,
    size: int = 3,
    change: Change | None = None,
    authority: Path | None = None,
) -> AsyncGenerator[Cluster]:
    """Servers that know each other and have a leader for JetStream; all are killed at the end.

    Args:
        folder: for the servers alone.
        trust: keys of the post room: its operator, accounts and gateway.
        size: 1 for a single server without a cluster.
        change: called with the configuration of each server, to make it another.
        authority: whose certificates the servers show, if they speak TLS.
    """
    ports = _free_ports(2 * size)
    clients, routes = ports[:size], ports[size:]
    nodes = []
    for number, (port, route) in enumerate(zip(clients, routes, strict=True)):
        place = folder / f"n{number}"
        place.mkdir(parents=True)
        config = server_config(place, trust) | {"server_name": f"n{number}", "port": port}
        if size > 1:
            config["cluster"] = {
                "name": "postroom",
                "host": HOST,
                "port": route,
                "no_advertise": True,
                "routes": [f"nats://{HOST}:{other}" for other in routes if other != route],
            }
        if change is not None:
            change(config)
        nodes.append(Node(place, f"n{number}", port, config))
    tls = ssl.create_default_context(cafile=authority) if authority else None
    cluster = Cluster(nodes, trust, tls)
    try:
        async with asyncio.TaskGroup() as starting:
            for node in nodes:
                starting.create_task(node.start())
        await cluster.ready()
        yield cluster
    finally:
        for node in nodes:
            await node.kill()


def server_config(folder: Path, trust: Trust) -> dict[str, Any]:
    """Configuration of one server that keeps what a post room asks for."""
    return {
        "host": HOST,
        "operator": trust.operator_jwt,
        "system_account": trust.system_account,
        "resolver": {
            "type": "full",
            "dir": str(folder / "accounts"),
            "allow_delete": True,
            "interval": "2m",
        },
        "resolver_preload": {
            trust.system_account: trust.account_jwts()[trust.system_account],
        },
        "proxies": {"trusted": [{"key": trust.proxy_key.public}]},
        "jetstream": {
            "store_dir": str(folder / "store"),
            "max_memory_store": 1024**4,
            "max_file_store": 1024**4,
            "sync_interval": "always",
        },
        "max_control_line": 32 * 1024,
        "max_payload": 1024 * 1024,
    }


def _written(config: dict[str, Any]) -> str:
    lines = [f"{name}: {json.dumps(value)}" for name, value in config.items() if name != "include"]
    return "\n".join([*lines, *([f"include {config['include']}"] if "include" in config else [])])


def _free_ports(count: int) -> list[int]:
    """Ports below those that the system hands out by itself, which others take meanwhile."""
    found: list[int] = []
    for _ in range(count * CHANCES):
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            if port not in found:
                found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError("there are no free ports")


def _tls_first(config: dict[str, Any]) -> bool:
    return bool(config.get("tls", {}).get("handshake_first"))


def _ignore(_error: Exception) -> None:
    """Servers that come and go are what these tests are about."""


__all__ = ["Change", "Cluster", "Node", "running_cluster", "server_config", "survey"]
