"""Whether Codex runs our hooks: its own app server is asked, since it alone knows what its person has approved."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from postroom.connect.clients.base import Home, Remark
from postroom.errors import PostroomError
from postroom.templates.programs import find

SECONDS = 15.0
"""For one line of its answer."""

_END_SECONDS = 5.0

_INTRODUCED = {"clientInfo": {"name": "postroom", "version": "1"}}
_ASKED = (
    {"id": 1, "method": "initialize", "params": _INTRODUCED},
    {"method": "initialized"},
    {"id": 2, "method": "hooks/list", "params": {"cwds": [os.sep]}},
)


def trusted(home: Home, mark: str) -> list[Remark]:
    """What Codex says of the hooks whose command has `mark`."""
    try:
        known = _hooks(find("codex", home.machine).path, home)
        hooks = [hook for hook in known if mark in str(hook.get("command"))]
    except PostroomError as error:
        return [Remark("trust", f"Codex cannot be asked: {error.message}")]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return [Remark("trust", f"Codex does not say: {error or type(error).__name__}")]
    return [_remark(hooks)] if hooks else []


def _remark(hooks: Sequence[dict[str, Any]]) -> Remark:
    off = [str(hook["eventName"]) for hook in hooks if not hook.get("enabled")]
    approved = [hook for hook in hooks if hook.get("trustStatus") in {"trusted", "managed"}]
    if off:
        detail = f"hooks are switched off: {', '.join(off)}"
        return Remark("trust", detail, well=False, remedy="switch them on: /hooks in Codex")
    if len(approved) < len(hooks):
        return Remark(
            "trust",
            f"you have approved {len(approved)} of {len(hooks)} hooks, and Codex runs no other",
            well=False,
            remedy="start codex in a terminal, and trust them: it asks, or /hooks",
        )
    return Remark("trust", f"you have approved all {len(hooks)} hooks")


def _hooks(program: Path, home: Home) -> list[dict[str, Any]]:
    """The hooks that Codex knows; raises what an answer in another form raises."""
    ours, theirs = socket.socketpair()
    environment = {**home.machine.env, "CODEX_HOME": str(home.path)}
    with ours, theirs:
        server = subprocess.Popen(
            [program, "app-server"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=os.sep,
        )
        theirs.close()
        try:
            return _answer(ours)
        finally:
            ours.close()  # it ends with its input; killed, it would leave half of what it has begun
            try:
                server.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _answer(link: socket.socket) -> list[dict[str, Any]]:
    link.settimeout(SECONDS)
    link.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in _ASKED))
    with link.makefile("rb") as lines:
        for line in lines:
            answer = json.loads(line)
            if answer.get("id") == 2:
                return [hook for each in answer["result"]["data"] for hook in each["hooks"]]
    raise ValueError("its app server has ended")
