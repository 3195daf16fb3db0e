"""A nats-server with a configuration of the test's own, a key that it may let in, and a proxy that stalls."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import signal
from contextlib import suppress
from pathlib import Path
from typing import Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from library.servers import NATS_SERVER, die_with_us


class UserKey:
    """A new key of a user: what signs, and `public`, the text of its public key as NATS has it (NATS, ADR-14)."""

    def __init__(self) -> None:
        key = Ed25519PrivateKey.generate()
        raw = bytes([20 << 3]) + key.public_key().public_bytes_raw()
        checksum = binascii.crc_hqx(raw, 0).to_bytes(2, "little")
        self.public = base64.b32encode(raw + checksum).decode().rstrip("=")
        self.sign = key.sign


class ConfiguredServer:
    """`async with` it; `restart` keeps its port."""

    def __init__(self, folder: Path, config: str = "") -> None:
        self._folder = folder
        self._config = config
        self._port = -1
        self._process: asyncio.subprocess.Process | None = None

    @property
    def place(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._port}"

    def configure(self, config: str) -> None:
        """Take another configuration, at once."""
        self._config = config
        self._write()
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def _write(self) -> Path:
        file = self._folder / "nats.conf"
        file.write_text(self._config)
        return file

    async def __aenter__(self) -> Self:
        self._folder.mkdir(exist_ok=True)
        for old in self._folder.glob("*.ports"):
            old.unlink()
        self._process = await asyncio.create_subprocess_exec(
            NATS_SERVER,
            *("-c", self._write(), "-a", "127.0.0.1", "-p", str(self._port)),
            *("--ports_file_dir", self._folder),
            stderr=asyncio.subprocess.DEVNULL,
            preexec_fn=die_with_us,
        )
        async with asyncio.timeout(10):
            # The server gives no other sign.
            while not (files := list(self._folder.glob("*.ports"))) or not files[0].read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        self._port = int(json.loads(files[0].read_text())["nats"][0].rsplit(":", 1)[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop(kill=True)

    async def stop(self, *, kill: bool = False) -> None:
        """End it."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
            await self._process.wait()

    async def restart(self, *, kill: bool = False) -> None:
        """End it and start it again."""
        await self.stop(kill=kill)
        await self.__aenter__()


class Proxy:
    """TCP to a server in pieces of `size` bytes; `stall` stops both ways without hanging up."""

    def __init__(self, place: str, size: int = 65_536) -> None:
        self._host, _, self._port = place.partition(":")
        self._size = size
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._pipes: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
        for writer in self._writers:
            with suppress(OSError):
                await writer.wait_closed()

    def lead_to(self, place: str) -> None:
        """Forward what connects from now on to another server."""
        self._host, _, self._port = place.partition(":")

    def stall(self) -> None:
        """Let nothing through that is connected now; new connections flow."""
        self._flowing.clear()
        self._flowing = asyncio.Event()
        self._flowing.set()

    def shut(self) -> None:
        """Hold back what comes until `open`."""
        self._flowing.clear()

    def open(self) -> None:
        """Let through what `shut` held back."""
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other, back = await asyncio.open_connection(self._host, int(self._port))
        except OSError:  # it is not there yet
            writer.transport.abort()
            return
        self._writers += [writer, back]
        flowing = self._flowing
        for source, target in ((reader, back), (other, writer)):
            pipe = asyncio.create_task(self._pipe(source, target, flowing))
            self._pipes.add(pipe)
            pipe.add_done_callback(self._pipes.discard)

    async def _pipe(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, flowing: asyncio.Event
    ) -> None:
        try:
            with suppress(OSError):
                while data := await source.read(self._size):
                    await flowing.wait()
                    target.write(data)
                    await target.drain()
        finally:
            target.close()  # also where the other side was reset: else this one waits for somebody who has gone
