"""A double of an OpenSandbox server over a real socket: lifecycle, egress, and the way to each container's execd.

A container is a bubblewrap sandbox with `execd.py` in it, so its network really has one way out: a loopback port
that leads to the post room's gateway, as the egress control of a real one lets through one address. `open`
makes a container in the network of this machine instead: one whose egress control only says that it holds.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from postroom.sandbox.bubblewrap import BubblewrapProvider
from postroom.sandbox.port import Mount, SandboxHandle, SandboxSpec

KEY = "OPEN-SANDBOX-API-KEY"
TOKEN = "X-EXECD-ACCESS-TOKEN"
EXECD, EGRESS = 44772, 18080
HERE = Path(__file__).resolve().parent


class OpenNetwork(BubblewrapProvider):
    """The same container in this machine's network."""

    own_network = False


@dataclass
class Container:
    """One sandbox."""

    id: str
    asked: dict[str, Any]
    folder: Path
    token: str
    created: datetime
    expires: datetime | None
    policy: dict[str, Any]
    handle: SandboxHandle | None = None
    servers: list[asyncio.Server] = field(default_factory=list)
    renewals: int = 0

    @property
    def execd(self) -> str:
        return str(self.folder / "s" / "e")


@dataclass
class Behaviour:
    """What a test chooses.

    enforcement: what the egress control says of itself.
    policy: what it says that it enforces, None for what was asked for.
    open: containers are in this machine's network.
    argv: execd knows commands by their words.
    """

    enforcement: str = "dns+nft"
    policy: dict[str, Any] | None = None
    open: bool = False
    argv: bool = True


class Double:
    """The server.

    Args:
        key: that its API demands.
        gateway: (host, port) that containers can reach, at the same port of their loopback.
    """

    def __init__(self, key: str, gateway: tuple[str, int]) -> None:
        self.key = key
        self.gateway = gateway
        self.behaviour = Behaviour()
        self.containers: dict[str, Container] = {}
        self.made = 0
        self.seen: list[str] = []
        """Every body but that of an upload, as text, and every path."""
        self.port = 0

    def app(self) -> Starlette:
        every = ["GET", "POST", "PUT", "PATCH", "DELETE"]
        return Starlette(
            routes=[
                Route("/v1/sandboxes", self.create, methods=["POST"]),
                Route("/v1/sandboxes", self.listing, methods=["GET"]),
                Route("/v1/sandboxes/{id}", self.one, methods=["GET"]),
                Route("/v1/sandboxes/{id}", self.delete, methods=["DELETE"]),
                Route("/v1/sandboxes/{id}/renew-expiration", self.renew, methods=["POST"]),
                Route("/v1/sandboxes/{id}/endpoints/{port:int}", self.endpoint, methods=["GET"]),
                Route("/to/{id}/18080/policy", self.egress, methods=["GET", "PATCH"]),
                Route("/to/{id}/{port:int}/{path:path}", self.relay, methods=every),
                Route("/double", self.state, methods=["GET", "POST"]),
            ]
        )

    def _known(self, request: Request) -> Container | None:
        return self.containers.get(request.path_params["id"])

    def _denied(self, request: Request) -> Response | None:
        if request.headers.get(KEY) == self.key:
            return None
        return _error(401, "UNAUTHORIZED", "the API key is missing or wrong")

    async def create(self, request: Request) -> Response:
        if denied := self._denied(request):
            return denied
        body = await request.body()
        self.seen.append(body.decode())
        asked = json.loads(body)
        box = Container(
            id=secrets.token_hex(8),
            asked=asked,
            folder=Path(tempfile.mkdtemp(prefix="osb-")).resolve(),
            token=secrets.token_hex(16) if asked.get("secureAccess") else "",
            created=datetime.now(UTC),
            expires=None,
            policy=asked.get("networkPolicy") or {},
        )
        self.containers[box.id] = box
        self.made += 1
        await self._start(box)
        return JSONResponse(self._about(box), 202)

    async def _start(self, box: Container) -> None:
        for name in ("w", "s"):
            (box.folder / name).mkdir()
        gateway = box.folder / "g"

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                far_reader, far_writer = await asyncio.open_connection(*self.gateway)
            except OSError:
                writer.close()
                return
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))

        box.servers.append(await asyncio.start_unix_server(accept, gateway))
        provider = OpenNetwork() if self.behaviour.open else BubblewrapProvider()
        draft = SandboxSpec(
            (),
            {},
            "/workspace",
            box.folder / "w",
            gateway,
            box.folder / "log",
            box.folder / "s",
            (Mount(HERE, "/opt/double"),),
        )
        paths = provider.paths(draft)
        words = [sys.executable, "-P", "/opt/double/execd.py", f"{paths.state}/e", box.token]
        words.append("argv" if self.behaviour.argv else "text")
        if not self.behaviour.open:
            words += [str(self.gateway[1]), paths.gateway_socket]
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": paths.home, "LANG": "C.UTF-8"}
        box.handle = await provider.start(replace(draft, argv=tuple(words), env=env))
        await _answering(box.execd)
        if lifetime := box.asked.get("timeout"):
            box.expires = datetime.now(UTC) + timedelta(seconds=lifetime)

    async def listing(self, request: Request) -> Response:
        if denied := self._denied(request):
            return denied
        wanted = parse_qsl(request.query_params.get("metadata", ""))
        found = [
            box
            for box in self.containers.values()
            if all((box.asked.get("metadata") or {}).get(k) == v for k, v in wanted)
        ]
        page = {"page": 1, "pageSize": 100, "totalItems": len(found), "totalPages": 1}
        items = [self._about(box) for box in found]
        return JSONResponse({"items": items, "pagination": page | {"hasNextPage": False}})

    async def one(self, request: Request) -> Response:
        box = self._known(request)
        return self._denied(request) or (JSONResponse(self._about(box)) if box else _gone())

    async def delete(self, request: Request) -> Response:
        if denied := self._denied(request):
            return denied
        box = self.containers.pop(request.path_params["id"], None)
        if box is None:
            return _gone()
        await self._end(box)
        return Response(status_code=204)

    async def renew(self, request: Request) -> Response:
        if denied := self._denied(request):
            return denied
        box = self._known(request)
        if box is None:
            return _gone()
        box.expires = datetime.fromisoformat((await request.json())["expiresAt"])
        box.renewals += 1
        return JSONResponse({"expiresAt": box.expires.isoformat()})

    async def endpoint(self, request: Request) -> Response:
        if denied := self._denied(request):
            return denied
        box = self._known(request)
        if box is None:
            return _gone()
        headers = {TOKEN: box.token} if box.token else {}
        place = f"127.0.0.1:{self.port}/to/{box.id}/{request.path_params['port']}"
        return JSONResponse({"endpoint": place, "headers": headers})

    async def egress(self, request: Request) -> Response:
        box = self._known(request)
        if box is None:
            return _gone()
        if request.method == "PATCH":
            box.policy.setdefault("egress", []).extend(await request.json())
        said = box.policy if self.behaviour.policy is None else self.behaviour.policy
        return JSONResponse(
            {
                "status": "ok",
                "mode": "enforcing",
                "enforcementMode": self.behaviour.enforcement,
                "policy": said,
            }
        )

    async def relay(self, request: Request) -> Response:
        box = self._known(request)
        if box is None:
            return _gone()
        path, port = request.path_params["path"], request.path_params["port"]
        body = await request.body()
        self.seen.append(f"{request.method} {path}?{request.url.query}")
        if not path.startswith("files/upload"):
            self.seen.append(body.decode(errors="replace"))
        inner = f"http://execd/{path}" if port == EXECD else f"http://execd/proxy/{port}/{path}"
        if request.url.query:
            inner += f"?{request.url.query}"
        headers = {k: v for k, v in request.headers.items() if k != "host"}
        transport = httpx.AsyncHTTPTransport(uds=box.execd)
        try:
            async with httpx.AsyncClient(transport=transport, timeout=60) as client:
                answer = await client.request(request.method, inner, headers=headers, content=body)
        except httpx.HTTPError:
            return _error(502, "BAD_GATEWAY", "the container does not answer")
        dropped = {"transfer-encoding", "connection", "content-length"}
        kept = {k: v for k, v in answer.headers.items() if k not in dropped}
        return Response(answer.content, answer.status_code, kept)

    async def state(self, request: Request) -> Response:
        """For tests: change how it behaves, ask what it has seen."""
        if request.method == "POST":
            for name, value in (await request.json()).items():
                setattr(self.behaviour, name, value)
        return JSONResponse(
            {
                "containers": [
                    {**self._about(box), "pid": box.handle.pid if box.handle else 0}
                    for box in self.containers.values()
                ],
                "made": self.made,
                "seen": self.seen,
            }
        )

    async def expire(self) -> None:
        """Remove what nobody has renewed, now and then."""
        while True:
            await asyncio.sleep(0.2)
            now = datetime.now(UTC)
            for box in list(self.containers.values()):
                if box.expires is not None and box.expires < now:
                    del self.containers[box.id]
                    await self._end(box)

    async def close(self) -> None:
        for box in list(self.containers.values()):
            await self._end(box)
        self.containers.clear()

    async def _end(self, box: Container) -> None:
        if box.handle is not None:
            box.handle.kill()
            await box.handle.wait()
        for server in box.servers:
            server.close()
        shutil.rmtree(box.folder, ignore_errors=True)

    def _about(self, box: Container) -> dict[str, Any]:
        return {
            "id": box.id,
            "status": {"state": "Running"},
            "metadata": box.asked.get("metadata") or {},
            "entrypoint": box.asked.get("entrypoint") or [],
            "image": box.asked.get("image"),
            "createdAt": box.created.isoformat(),
            **({"expiresAt": box.expires.isoformat()} if box.expires else {}),
        }


def _error(status: int, code: str, message: str) -> Response:
    return JSONResponse({"code": code, "message": message}, status)


def _gone() -> Response:
    return _error(404, "DOCKER::SANDBOX_NOT_FOUND", "no such sandbox")


async def _answering(path: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_unix_connection(path)
            except OSError:
                await asyncio.sleep(0.02)  # it starts; there is no event to wait for
                continue
            writer.close()
            return


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def serving(double: Double) -> AsyncGenerator[str]:
    """Its URL while it serves on a free port of loopback."""
    listener = socket.create_server(("127.0.0.1", 0))
    double.port = listener.getsockname()[1]
    config = uvicorn.Config(double.app(), log_level="warning", lifespan="off", http="h11")
    server = uvicorn.Server(config)
    server.capture_signals = _no_signals
    tasks = [asyncio.create_task(server.serve(sockets=[listener]))]
    tasks.append(asyncio.create_task(double.expire()))
    try:
        yield f"http://127.0.0.1:{double.port}"
    finally:
        server.should_exit = True
        server.force_exit = True
        tasks[1].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await double.close()


def _no_signals() -> Any:
    from contextlib import nullcontext

    return nullcontext()


async def main() -> None:
    """`double.py KEY HOST PORT`: prints its URL, ends with SIGTERM."""
    key, host, port = sys.argv[1:]
    ending = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ending.set)
    async with serving(Double(key, (host, int(port)))) as url:
        os.write(1, f"{url}\n".encode())
        await ending.wait()


if __name__ == "__main__":
    asyncio.run(main())
