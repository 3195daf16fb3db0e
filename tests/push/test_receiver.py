"""The receiver of docs/a2a.md, as a reader saves and starts it."""

from __future__ import annotations

import asyncio
import json
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from postroom.http.outbound import OutboundPolicy, client_context
from postroom.webhooks.sender import Sender
from tests.docs.pages import blocks
from tests.push.rig import KEY_OF_ALL

pytestmark = pytest.mark.anyio


@pytest.fixture
def started(tmp_path: Path) -> Generator[tuple[int, queue.Queue[str]]]:
    """The receiver of `anna`: its port, and the lines that it prints."""
    (program,) = [block for block in blocks("docs/a2a.md") if block.name == "receiver.py"]
    (tmp_path / "receiver.py").write_text(program.text)
    (tmp_path / "keys.json").write_text(json.dumps({"secret": KEY_OF_ALL.secret("anna")}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "receiver.py", str(port)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    reading = threading.Thread(target=lambda: [lines.put(line) for line in process.stdout or ()])
    reading.start()
    yield port, lines
    process.kill()
    process.wait()
    reading.join()
    process.stdout.close()


@pytest.mark.requirement("pushes-not-lost")
async def test_the_receiver_of_the_document_takes_what_is_signed_for_it_once_and_nothing_else(
    started: tuple[int, queue.Queue[str]],
):
    port, lines = started
    sender = Sender(OutboundPolicy.parse([f"127.0.0.1:{port}"]), client_context)

    async def post(name: str, body: bytes, owner: str = "anna", ago: float = 0.0) -> int:
        signed = KEY_OF_ALL.headers([KEY_OF_ALL.secret(owner)], name, time.time() - ago, body)
        while True:
            outcome = await sender.post(f"http://127.0.0.1:{port}/", signed, body)
            if "cannot connect" not in outcome.reason:  # it is starting
                return outcome.status
            await asyncio.sleep(0.05)

    assert await post("push_1", b'{"number": 1}') == 204
    assert await post("push_1", b'{"number": 1}') == 204
    assert await post("push_2", b'{"number": 2}', owner="bert") == 401
    assert await post("push_3", b'{"number": 3}', ago=3600) == 401
    assert await post("push_4", b'{"number": 4}') == 204
    assert [lines.get(timeout=10), lines.get(timeout=10)] == ["{'number': 1}\n", "{'number': 4}\n"]
