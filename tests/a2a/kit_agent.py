"""The agent that A2A's official kit (github.com/a2aproject/a2a-tck, branch 1.0-dev) tests: it acts on the prefix of a
request's `messageId`, as the kit's `scenarios/*.feature` say.

    postroom spawn kit.toml --sandbox none --isolation none     # command = ["python3", ".../tests/a2a/kit_agent.py"]
    python -m pytest tests/compatibility --sut-host "$(cat api)" --transport jsonrpc      # in the kit's own checkout

The file `api` in the worker's folder has the address. It needs no wall, or the kit could not reach it.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

TEXT = {
    "tck-artifact-text": "Generated text content",
    "tck-stream-001": "Stream hello from TCK",
    "tck-stream-003": "Stream task lifecycle",
    "tck-stream-ordering-001": "Ordered output",
    "tck-stream-artifact-text": "Streamed text content",
}
NAMED = {"filename": "output.txt", "mediaType": "text/plain"}
PARTS: dict[str, dict[str, Any]] = {
    **{prefix: {"text": text} for prefix, text in TEXT.items()},
    "tck-artifact-file-url": {"url": "https://example.com/output.txt", **NAMED},
    "tck-artifact-file": {"raw": base64.b64encode(b"content").decode(), **NAMED},
    "tck-stream-artifact-file": {"raw": base64.b64encode(b"content").decode(), **NAMED},
    "tck-artifact-data": {"data": {"key": "value", "count": 42}},
}
"""Prefix to the only part of the artifact."""

_writing = threading.Lock()


def say(**line: Any) -> None:
    """Print one line."""
    with _writing:
        sys.stdout.write(f"{json.dumps(line)}\n")
        sys.stdout.flush()


def message_id(task: str) -> str:
    """The `messageId` of what was said of a task last: its request, or an answer."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": task}}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    url = f"{os.environ['POSTROOM_API']}/a2a"
    asked = urllib.request.Request(url, json.dumps(call).encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(asked, timeout=20) as answer:
        return json.load(answer)["result"]["history"][-1]["messageId"]


def work(task: str) -> None:
    """Do one task, or what comes after an answer."""
    name = message_id(task)
    if name.startswith("tck-input-required"):
        say(type="input_required", task=task, text="More?")
        return
    if name.startswith("tck-reject-task"):
        say(type="reject", task=task, text="rejected")
        return
    if name.startswith(("tck-stream", "test-resubscribe")):
        say(type="update", task=task, text="at it")
    if name.startswith("test-resubscribe"):
        time.sleep(4)  # twice the kit's time-out of a stream
    if name.startswith("tck-stream-artifact-chunked"):
        say(type="artifact", task=task, id="c", text="chunk-1 ", last=False)
        say(type="artifact", task=task, id="c", text="chunk-2", append=True)
    for prefix, part in PARTS.items():
        if name.startswith(f"{prefix}-"):
            say(type="artifact", task=task, parts=[part])
            break
    say(type="complete", task=task, text="Hello from TCK")


def begin(task: str) -> None:
    """Do one task, or go on with it, beside the reading of lines."""
    threading.Thread(target=work, args=(task,), daemon=True).start()


def main() -> None:
    """Read lines until the end."""
    for line in map(json.loads, sys.stdin):
        match line["type"]:
            case "hello":
                Path("api").write_text(line["api"], encoding="utf-8")
            case "task":
                begin(line["id"])
            case "input":
                begin(line["task"])
            case "cancel":
                say(type="canceled", task=line["task"])


if __name__ == "__main__":
    main()
