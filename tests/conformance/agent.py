"""The worker that A2A's official kit tests: it acts on the prefix of a request's `messageId`, as the kit's
`scenarios/*.feature` say. It runs behind the wall like every worker; `tests/conformance/run.py` spawns it.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import urllib.request
from typing import Any

CONTENT = base64.b64encode(b"content").decode()
NAMED = {"filename": "output.txt", "mediaType": "text/plain"}
PARTS: dict[str, dict[str, Any]] = {
    "tck-artifact-text": {"text": "Generated text content"},
    "tck-artifact-file-url": {"url": "https://example.com/output.txt", **NAMED},
    "tck-artifact-file": {"raw": CONTENT, **NAMED},
    "tck-artifact-data": {"data": {"key": "value", "count": 42}},
    "tck-stream-001": {"text": "Stream hello from TCK"},
    "tck-stream-003": {"text": "Stream task lifecycle"},
    "tck-stream-ordering-001": {"text": "Ordered output"},
    "tck-stream-artifact-text": {"text": "Streamed text content"},
    "tck-stream-artifact-file": {"raw": CONTENT, **NAMED},
}
"""Prefix to the only part of the artifact; the longest that fits counts."""

STREAM_PATIENCE = 2.0
"""Seconds that the kit waits for an event of a stream."""

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
        say(type="ask", task=task, text="More?")
        return
    if name.startswith("tck-reject-task"):
        say(type="reject", task=task, text="rejected")
        return
    if name.startswith("tck-message-response"):
        say(type="complete", task=task, text="Direct message response", message=True)
        return
    if name.startswith(("tck-stream", "test-resubscribe")):
        say(type="update", task=task, text="at it")
    if name.startswith("test-resubscribe"):
        threading.Event().wait(2 * STREAM_PATIENCE)
    if name.startswith("tck-stream-artifact-chunked"):
        say(type="artifact", task=task, id="c", text="chunk-1 ", last=False)
        say(type="artifact", task=task, id="c", text="chunk-2", append=True)
    fitting = [prefix for prefix in PARTS if name.startswith(f"{prefix}-")]
    if fitting:
        say(type="artifact", task=task, parts=[PARTS[max(fitting, key=len)]])
    say(type="complete", task=task, text="Hello from TCK")


def begin(task: str) -> None:
    """Do one task, or go on with it, beside the reading of lines."""
    threading.Thread(target=work, args=(task,), daemon=True).start()


def main() -> None:
    """Read lines until the end."""
    for line in map(json.loads, sys.stdin):
        match line["type"]:
            case "task":
                begin(line["id"])
            case "input":
                begin(line["task"])
            case "cancel":
                say(type="canceled", task=line["task"])


if __name__ == "__main__":
    main()
